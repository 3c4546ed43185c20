"""Collection on a real database: each report counts once, or is kept aside with its reason."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import sqlalchemy as sa
from sqlalchemy import func, select

from farm.gang.lifecycle import AttemptState, RankPhase
from farm.messages.reports import (
    REPORT_NAMES,
    LogPart,
    PeersMeasured,
    RankEnded,
    Report,
    ReportBatch,
    ReportBody,
    Sample,
    Samples,
    Shaped,
    StepTimes,
)
from farm.messages.trainer_lines import Failure, FailureKind, StepKind
from farm.store.engine import reading, writing
from farm.store.reports.logs import log_stretch
from farm.store.reports.reports import Stored, store_batches
from farm.store.result_tables import LogPartRow, SampleRow, StepChunk
from farm.store.tables import LateReport, RankRow
from farm.values.codec import to_json
from tests.factories import NOW, add_agent, add_attempt, add_job, job_spec

MEASURED = PeersMeasured(rtts=())


def report(number: int, body: ReportBody, *, token: int, rank: int = 0) -> Report:
    fields = to_json(body)
    assert isinstance(fields, dict)
    return Report(number=number, token=token, rank=rank, kind=REPORT_NAMES[type(body)], body=fields)


def samples(*ticks: int) -> Samples:
    return Samples(samples=tuple(Sample(tick=t, cpu_ratio=0.5) for t in ticks))


def store(
    engine: sa.Engine, reports: Iterable[Report], *, agent_id: str = "a", generation: str = "g"
) -> Stored:
    batch = ReportBatch(agent_id=agent_id, generation=generation, reports=tuple(reports))
    with writing(engine) as session:
        return store_batches(session, [batch], now=NOW)[0]


def count(engine: sa.Engine, table: type) -> int:
    with reading(engine) as session:
        return session.scalar(select(func.count()).select_from(table)) or 0


@pytest.fixture
def token(engine: sa.Engine) -> int:
    """The token of a running attempt: rank 0 on agent a, rank 1 on agent b."""
    with writing(engine) as session:
        job_id = add_job(session, job_spec(world_size=2))
        add_agent(session, "a")
        add_agent(session, "b")
        return add_attempt(session, job_id, ["a", "b"], state=AttemptState.RUNNING)


def test_a_batch_that_comes_twice_counts_once(engine: sa.Engine, token: int) -> None:
    steps = StepTimes(kind=StepKind.TIMED, first_step=0, begun_s=0.0, times_s=(0.1, 0.2))
    batch = [report(1, samples(0, 1), token=token), report(2, steps, token=token)]
    assert store(engine, batch).admitted_count == 2
    again = store(engine, batch)
    assert (again.confirmed, again.admitted_count, again.late_count) == (2, 0, 0)
    assert count(engine, SampleRow) == 2
    assert count(engine, StepChunk) == 1


def test_overlapping_batches_add_only_what_is_new(engine: sa.Engine, token: int) -> None:
    store(engine, [report(n, samples(n), token=token) for n in (1, 2)])
    stored = store(engine, [report(n, samples(n), token=token) for n in (2, 3)])
    assert (stored.confirmed, stored.admitted_count) == (3, 1)
    assert count(engine, SampleRow) == 3


def test_nothing_is_taken_across_a_gap_within_a_batch(engine: sa.Engine, token: int) -> None:
    torn = [report(1, samples(1), token=token), report(3, samples(3), token=token)]
    stored = store(engine, torn)
    assert (stored.confirmed, stored.admitted_count) == (1, 1)


def test_a_spool_goes_on_although_the_store_has_lost_what_it_confirmed(
    engine: sa.Engine, token: int
) -> None:
    store(engine, [report(1, samples(1), token=token)])
    stored = store(engine, [report(7, samples(3), token=token)])
    assert (stored.confirmed, stored.admitted_count) == (7, 1)


def test_the_same_numbers_of_a_new_generation_are_new_reports(
    engine: sa.Engine, token: int
) -> None:
    store(engine, [report(1, samples(1), token=token)])
    assert store(engine, [report(1, samples(2), token=token)], generation="h").admitted_count == 1


def test_a_generation_of_which_the_store_knows_nothing_goes_on_where_it_is(
    engine: sa.Engine, token: int
) -> None:
    assert store(engine, [report(500, samples(1), token=token)]).confirmed == 500


def test_the_report_of_an_agent_that_is_not_leased_for_the_rank_is_kept_aside(
    engine: sa.Engine, token: int
) -> None:
    stored = store(engine, [report(1, samples(1), token=token, rank=1)])
    assert (stored.confirmed, stored.admitted_count, stored.late_count) == (1, 0, 1)
    assert count(engine, SampleRow) == 0
    with reading(engine) as session:
        assert "leased to b" in session.scalars(select(LateReport)).one().reason


def test_a_report_that_cannot_be_read_is_kept_aside_and_blocks_nothing(
    engine: sa.Engine, token: int
) -> None:
    broken = Report(number=1, token=token, rank=0, kind="samples", body={"samples": "none"})
    unknown = Report(number=2, token=token, rank=0, kind="gossip", body={})
    stored = store(engine, [broken, unknown, report(3, samples(1), token=token)])
    assert (stored.confirmed, stored.admitted_count, stored.late_count) == (3, 1, 2)


@pytest.mark.parametrize("value", [float("nan"), "a\0b", "caf\udce9"])
def test_what_no_database_takes_is_refused_with_its_report_alone(
    engine: sa.Engine, token: int, value: object
) -> None:
    body: dict[str, object] = {"samples": [{"tick": 1, "cpu_ratio": value}]}
    broken = Report(number=1, token=token, rank=0, kind="samples", body=body)
    stored = store(engine, [broken, report(2, samples(2), token=token)])
    assert (stored.confirmed, stored.admitted_count, stored.late_count) == (2, 1, 1)
    with reading(engine) as session:
        assert "cpu_ratio" in session.scalars(select(LateReport)).one().reason


@pytest.mark.parametrize("name", ["gpu0\0_ratio", "gpu0\udce9_ratio"])
def test_a_metric_whose_name_no_database_takes_costs_the_character_alone(
    engine: sa.Engine, token: int, name: str
) -> None:
    """What cannot be written as UTF-8 would make every page fail that shows it."""
    sample = Sample(tick=1, extra={name: 0.5})
    stored = store(engine, [report(1, Samples(samples=(sample,)), token=token)])
    assert stored.admitted_count == 1
    with reading(engine) as session:
        [row] = session.scalars(select(SampleRow))
    [kept] = row.extra or {}
    assert kept in ("gpu0\ufffd_ratio", "gpu0?_ratio")


def test_a_nul_in_a_log_costs_the_character_and_not_the_report(
    engine: sa.Engine, token: int
) -> None:
    failure = Failure(kind=FailureKind.KILLED, message="a\0b")
    ended = RankEnded(result=None, failure=failure, timed_begun_s=None, log_tail="core\0dump")
    assert store(engine, [report(1, ended, token=token)]).admitted_count == 1
    with reading(engine) as session:
        stored = session.get_one(RankRow, (token, 0)).ended
    assert stored is not None
    assert stored["log_tail"] == "core\ufffddump"


def test_half_a_character_costs_the_character_and_not_the_report(
    engine: sa.Engine, token: int
) -> None:
    failure = Failure(kind=FailureKind.KILLED, message="caf\udce9")
    ended = RankEnded(result=None, failure=failure, timed_begun_s=None, log_tail="")
    assert store(engine, [report(1, ended, token=token)]).admitted_count == 1
    with reading(engine) as session:
        stored = session.get_one(RankRow, (token, 0)).ended
    assert stored is not None
    assert stored["failure"]["message"] == "caf?"


def test_a_log_is_stored_once_and_moves_no_attempt(engine: sa.Engine, token: int) -> None:
    parts = [LogPart(first_character=0, text="core\0"), LogPart(first_character=5, text="dump\n")]
    batch = [report(n, part, token=token) for n, part in enumerate(parts, start=1)]
    stored = store(engine, batch)
    assert (stored.admitted_count, stored.moves_attempts) == (2, False)
    store(engine, batch, generation="sent once more")
    with reading(engine) as session:
        assert log_stretch(session, token, rank=0).text == "core\ufffddump\n"


def test_a_log_without_end_and_that_of_an_agent_not_leased_are_kept_aside(
    engine: sa.Engine, token: int
) -> None:
    endless = Report(
        number=1, token=token, rank=0, kind="log", body={"first_character": 2**40, "text": "x"}
    )
    foreign = report(2, LogPart(first_character=0, text="x"), token=token, rank=1)
    assert store(engine, [endless, foreign]).late_count == 2
    assert count(engine, LogPartRow) == 0


def test_a_barrier_report_moves_its_rank_forward_and_never_back(
    engine: sa.Engine, token: int
) -> None:
    store(engine, [report(1, MEASURED, token=token)])
    with writing(engine) as session:
        session.get_one(RankRow, (token, 0)).phase = RankPhase.STARTED
    store(engine, [report(2, MEASURED, token=token)])
    with reading(engine) as session:
        assert session.get_one(RankRow, (token, 0)).phase is RankPhase.STARTED


def test_the_last_rank_at_a_barrier_moves_its_attempt_and_a_failure_at_once(
    engine: sa.Engine, token: int
) -> None:
    assert not store(engine, [report(1, MEASURED, token=token)]).moves_attempts
    second = report(1, MEASURED, token=token, rank=1)
    assert store(engine, [second], agent_id="b").moves_attempts
    failure = Failure(kind=FailureKind.KILLED, message="gone")
    ended = RankEnded(result=None, failure=failure, timed_begun_s=None, log_tail="")
    assert store(engine, [report(2, ended, token=token)]).moves_attempts
    # Whoever is beyond a barrier keeps nobody at it.
    third = report(2, Shaped(emulator="none", rtts=()), token=token, rank=1)
    assert store(engine, [third], agent_id="b").moves_attempts


def test_reports_of_an_ended_attempt_are_late(engine: sa.Engine) -> None:
    with writing(engine) as session:
        job_id = add_job(session)
        add_agent(session, "a")
        over = add_attempt(session, job_id, ["a"], state=AttemptState.LOST)
    assert store(engine, [report(1, samples(1), token=over)]).late_count == 1
    assert count(engine, SampleRow) == 0
