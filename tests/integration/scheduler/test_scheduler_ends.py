"""Many attempts that end in one round: what it asks of the database, and that each ends by itself.

The rows are what the agents of a gang have reported when its last rank has ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import select
from sqlalchemy.orm import Session

from farm.gang.lifecycle import AttemptState, JobState, RankPhase
from farm.messages.commands import RankAddress
from farm.messages.reports import PeersMeasured, Prepared, RankEnded, Sample, Shaped, StepTimes
from farm.messages.trainer_lines import Epoch, Failure, FailureKind, StepKind
from farm.scheduler.advancing import advance_active_attempts
from farm.store.engine import reading, writing
from farm.store.result_tables import MeasurementRow, StepChunk
from farm.store.tables import AgentRow, AttemptRow, JobEvent, JobRow, RankRow, SweepRow
from farm.values.codec import to_json
from tests.factories import (
    NOW,
    add_agent,
    add_attempt,
    add_measurement,
    add_sweep,
    agent_facts,
    job_spec,
    seconds,
)
from tests.stored.store_statements import statements
from tests.stored.stored_series import insert_epoch, insert_samples, insert_steps
from tests.stored.two_agents import RESULT, RULES, SOURCE, STARTED

LATER = NOW + seconds(5)
OUT_OF_MEMORY = Failure(kind=FailureKind.OUT_OF_MEMORY, message="the kernel killed it")
KILLED = Failure(kind=FailureKind.KILLED, message="signal 9")
# What a first repetition does not satisfy yet.
PRECISION = {"repetitions": "auto", "precision_percent": 2.0}


def add_gangs(
    session: Session,
    failures: Sequence[Failure | None],
    *,
    precision: Mapping[str, object] | None = None,
    **changes: Any,
) -> list[int]:
    """Add running attempts of two ranks, all of which have just ended; return their tokens.

    Each is of a cell of its own of one sweep. With a failure both ranks have failed; without one
    gang i has taken i + 1 tenths of a second for a step, and as many tenths of its cores.
    """
    specs = [
        job_spec(**{"world_size": 2, "global_batch_size": 32 + 2 * i, **changes})
        for i in range(len(failures))
    ]
    job_ids = add_sweep(session, *specs)
    sweep = session.get_one(SweepRow, session.get_one(JobRow, job_ids[0]).sweep_id)
    sweep.spec = {**sweep.spec, **(precision or {})}
    return [
        _gang(session, index, job_id, failure)
        for index, (job_id, failure) in enumerate(zip(job_ids, failures, strict=True))
    ]


def _gang(session: Session, index: int, job_id: int, failure: Failure | None) -> int:
    count = session.scalar(select(sa.func.count()).select_from(AgentRow)) or 0
    agents = [f"a{count + rank:03d}" for rank in range(2)]
    for agent_id in agents:
        add_agent(session, agent_id, facts=agent_facts(machine_id=f"machine of {agent_id}"))
    token = add_attempt(session, job_id, agents, state=AttemptState.RUNNING, phase=RankPhase.ENDED)
    for rank in range(2):
        bodies = {
            "prepared": Prepared(
                address=RankAddress(
                    rank=rank, host="127.0.0.1", probe_port=1, trainer_ports=(20 + rank,)
                ),
                framework="tf",
                dataset=SOURCE,
                prepare_s=1.0,
            ),
            "peers": PeersMeasured(rtts=()),
            "shaped": Shaped(emulator="none", rtts=()),
            "started": STARTED,
            "ended": RankEnded(
                result=None if failure else RESULT,
                failure=failure,
                timed_begun_s=0.0,
                log_tail="",
            ),
        }
        row = session.get_one(RankRow, (token, rank))
        for column, body in bodies.items():
            setattr(row, column, to_json(body))
        row.ended_at, row.control_s = LATER, 1.0
        samples = [Sample(tick=tick, cpu_ratio=(index + 1) / 10) for tick in range(3)]
        insert_samples(session, day=NOW.date(), token=token, rank=rank, samples=samples)
    epoch = Epoch(
        epoch=0,
        train_s=10.0 * (index + 1),
        step_count=3,
        train_loss=None,
        val_loss=None,
        val_accuracy_ratio=None,
    )
    insert_epoch(session, token=token, rank=0, epoch=epoch)
    times_s = ((index + 1) / 10,) * 3
    steps = StepTimes(kind=StepKind.TIMED, first_step=0, begun_s=0.0, times_s=times_s)
    insert_steps(session, token=token, rank=0, steps=steps)
    return token


@pytest.mark.parametrize(("steps", "state"), [(None, "failed"), (10, "succeeded")])
def test_a_script_that_trains_to_its_end_makes_as_many_steps_on_every_rank(
    engine: sa.Engine, steps: int | None, state: str
) -> None:
    script: dict[str, Any] = {
        "model": "script:train.py",
        "dataset": "script",
        "strategy": "torch_script",
    }
    with writing(engine) as session:
        [token] = add_gangs(session, [None], **script, steps=steps)
        row = session.get_one(RankRow, (token, 1))
        assert row.ended is not None
        row.ended = {**row.ended, "result": {**row.ended["result"], "timed_step_count": 2}}
    advance_active_attempts(engine, now=LATER, rules=RULES)
    with reading(engine) as session:
        attempt = session.get_one(AttemptRow, token)
        assert attempt.state is AttemptState(state)
        if steps is None:
            assert attempt.failure_kind == FailureKind.TRAINER_RAISED.value
            reason = session.scalars(select(JobRow.reason)).one()
            assert "got 3 timed ones on rank 0 and 2 on rank 1" in (reason or "")


def test_ranks_out_of_step_are_all_timed_though_one_agent_has_several(engine: sa.Engine) -> None:
    spec: dict[str, Any] = {"strategy": "ps_async", "world_size": 4, "axes": {"ranks_per_agent": 2}}
    with writing(engine) as session:
        whole, cut = add_gangs(session, [None, None], server_count=1, **spec)
        for token in (whole, cut):
            for rank, process in ((0, 1), (1, 0), (1, 1)):
                times_s = (rank + process / 2,) * (2 if (token, process) == (cut, 1) else 3)
                steps = StepTimes(
                    process=process,
                    kind=StepKind.TIMED,
                    first_step=0,
                    begun_s=0.0,
                    times_s=times_s,
                )
                insert_steps(session, token=token, rank=rank, steps=steps)
    advance_active_attempts(engine, now=LATER, rules=RULES)
    with reading(engine) as session:
        measured = session.scalars(select(MeasurementRow)).one()
        assert measured.attempt_id == whole
        assert measured.timed_step_count == 4 * 3
        # 32 examples of a batch, 8 of each rank, and the slowest took 1.5 s for a step.
        assert measured.throughput_examples_per_s == pytest.approx(4 * 3 * 8 / (3 * 1.5))
        reason = session.get_one(AttemptRow, cut).reason
        assert reason is not None
        assert "rank 1 trained 3 timed steps, and 2 arrived" in reason


def states(engine: sa.Engine) -> list[tuple[AttemptState, JobState, str | None]]:
    """Return what has become of each attempt and of its job, and why, by token."""
    with reading(engine) as session:
        rows = session.execute(
            select(AttemptRow.state, JobRow.state, AttemptRow.failure_kind)
            .join(JobRow, JobRow.id == AttemptRow.job_id)
            .order_by(AttemptRow.id)
        )
        return [(row[0], row[1], row[2]) for row in rows]


SUCCEEDED = (AttemptState.SUCCEEDED, JobState.SUCCEEDED, None)
GIVEN_UP = (AttemptState.LOST, JobState.WAITING, "senseless")


@pytest.mark.parametrize("database_kind", ["postgresql"])
@pytest.mark.parametrize(
    ("failures", "at_most"),
    [((None,), 24), ((OUT_OF_MEMORY,), 18), ((KILLED,), 16), ((None, OUT_OF_MEMORY, KILLED), 25)],
    ids=["measured", "failed", "lost", "mixed"],
)
def test_what_a_round_asks_does_not_grow_with_the_attempts_that_end_in_it(
    engine: sa.Engine, failures: tuple[Failure | None, ...], at_most: int
) -> None:
    counts = []
    for times in (1, 10):
        with writing(engine) as session:
            add_gangs(session, failures * times)
        with statements(engine) as seen:
            advance_active_attempts(engine, now=LATER, rules=RULES)
        counts.append(len(seen))
    assert counts[1] == counts[0] <= at_most
    with reading(engine) as session:
        assert (
            session.scalars(select(AttemptRow.id).where(AttemptRow.ended_at.is_(None))).all() == []
        )


@pytest.mark.parametrize("database_kind", ["postgresql"])
def test_nor_does_it_with_the_cells_that_are_not_precise_yet(engine: sa.Engine) -> None:
    counts = []
    for count in (1, 10):
        with writing(engine) as session:
            add_gangs(session, [None] * count, precision=PRECISION)
        with statements(engine) as seen:
            advance_active_attempts(engine, now=LATER, rules=RULES)
        counts.append(len(seen))
        with reading(engine) as session:
            waiting = select(JobRow.cell_hash).where(JobRow.state == JobState.WAITING)
            latest = waiting.where(
                JobRow.sweep_id == select(sa.func.max(SweepRow.id)).scalar_subquery()
            )
            assert len(set(session.scalars(latest))) == count
    assert counts[1] == counts[0]


@pytest.mark.parametrize("database_kind", ["postgresql"])
def test_a_round_in_which_nothing_is_to_be_done_asks_two_things(engine: sa.Engine) -> None:
    with statements(engine) as seen:
        advance_active_attempts(engine, now=LATER, rules=RULES)
    assert len(seen) == 2


def test_each_of_many_that_end_together_has_its_own_measurement(engine: sa.Engine) -> None:
    with writing(engine) as session:
        tokens = add_gangs(session, [None, None, OUT_OF_MEMORY, None])
    advance_active_attempts(engine, now=NOW, rules=RULES)
    with reading(engine) as session:
        rows = session.scalars(select(MeasurementRow).order_by(MeasurementRow.attempt_id)).all()
        events = session.execute(select(JobEvent.attempt_id, JobEvent.event)).all()
        agents = session.scalars(select(AgentRow).order_by(AgentRow.id)).all()
        # The scheduler's clock was behind: no attempt is over before its ranks.
        assert set(session.scalars(select(AttemptRow.ended_at))) == {LATER}
    measured = [(r.attempt_id, r.status, r.step_time_s, r.cpu_ratio) for r in rows]
    assert measured == [
        (tokens[0], "ok", pytest.approx(0.1), pytest.approx(0.1)),
        (tokens[1], "ok", pytest.approx(0.2), pytest.approx(0.2)),
        (tokens[2], "out_of_memory", None, None),
        (tokens[3], "ok", pytest.approx(0.4), pytest.approx(0.4)),
    ]
    assert [row.details["agents"] for row in rows][1] == ["a002", "a003"]
    assert Counter(token for token, _ in events) == dict.fromkeys(tokens, 2)
    assert {agent.attempt_id for agent in agents} == {None}
    unclean = [agent.unclean_token for agent in agents]
    assert unclean == [None] * 4 + [tokens[2]] * 2 + [None] * 2


def test_one_that_the_database_refuses_does_not_stop_those_that_end_with_it(
    engine: sa.Engine,
) -> None:
    with writing(engine) as session:
        tokens = add_gangs(session, [None, None, None])
        job_id = session.get_one(AttemptRow, tokens[1]).job_id
        add_measurement(session, f"job {job_id}")
    advance_active_attempts(engine, now=LATER, rules=RULES)
    assert states(engine) == [SUCCEEDED, GIVEN_UP, SUCCEEDED]
    with reading(engine) as session:
        measured = select(MeasurementRow.attempt_id).order_by(MeasurementRow.attempt_id)
        measured = measured.where(MeasurementRow.attempt_id.is_not(None))
        assert session.scalars(measured).all() == [tokens[0], tokens[2]]
        assert session.scalar(select(sa.func.count()).select_from(JobEvent)) == 2 * len(tokens)


@pytest.mark.parametrize("column", ["times", "prepared", "spec"])
def test_one_that_makes_no_sense_does_not_stop_those_that_end_with_it(
    engine: sa.Engine, column: str
) -> None:
    with writing(engine) as session:
        tokens = add_gangs(session, [None, None, None])
        if column == "times":
            session.get_one(StepChunk, (tokens[1], 0, 0, 0)).times = b"no times"
        elif column == "prepared":
            session.get_one(RankRow, (tokens[1], 0)).prepared = {"nonsense": True}
        else:
            job = session.get_one(JobRow, session.get_one(AttemptRow, tokens[1]).job_id)
            job.spec = {**job.spec, "strategy": "gone_since_the_upgrade"}
    advance_active_attempts(engine, now=LATER, rules=RULES)
    assert states(engine) == [SUCCEEDED, GIVEN_UP, SUCCEEDED]


@pytest.mark.parametrize("database_kind", ["postgresql"])
def test_long_attempts_are_read_one_after_the_other(engine: sa.Engine) -> None:
    with writing(engine) as session:
        add_gangs(session, [None] * 3)
    with statements(engine) as seen:
        advance_active_attempts(engine, now=NOW + seconds(6 * 3600), rules=RULES)
    assert states(engine) == [SUCCEEDED] * 3
    assert sum("FROM samples" in text for text in seen) == 3
