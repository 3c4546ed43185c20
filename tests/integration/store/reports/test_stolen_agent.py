"""A program with an agent's key that reports what it likes costs its own attempt and no other."""

from __future__ import annotations

import datetime as dt
import json

import pytest
import sqlalchemy as sa
from sqlalchemy import func, select

from farm.collector.ingest import ElapsedTimes
from farm.gang.lifecycle import AttemptState, JobState
from farm.messages.rank_limits import MOST_BODY_BYTES, SLACK_S, rank_limits
from farm.messages.reports import (
    LogPart,
    PeersMeasured,
    RankEnded,
    Report,
    ReportBatch,
    ReportBody,
    Sample,
    Samples,
    StepTimes,
)
from farm.messages.trainer_lines import Epoch, Failure, FailureKind, StepKind
from farm.store.engine import reading, writing
from farm.store.reports.late_reports import KEPT_BODY_BYTES, KEPT_REPORTS, late_count
from farm.store.reports.reports import ElapsedTime, Stored, store_batches, time_by_wall
from farm.store.result_tables import EpochRow, LogPartRow, MeasurementRow, SampleRow, StepChunk
from farm.store.tables import AttemptRow, JobRow, LateReport, RankRow
from farm.values.codec import to_json
from farm.values.ranges import EXTRAS
from tests.factories import NOW, add_agent, add_attempt, add_job, job_spec, seconds
from tests.integration.scheduler.test_scheduler_ends import add_gangs
from tests.integration.store.reports.test_store_reports import report
from tests.stored.scheduler_round import run_round
from tests.stored.stored_series import insert_steps
from tests.stored.two_agents import RULES

STEPS = 20


@pytest.fixture
def token(engine: sa.Engine) -> int:
    """The token of a running attempt of 20 steps: rank 0 on agent a, rank 1 on agent b."""
    with writing(engine) as session:
        job_id = add_job(session, job_spec(world_size=2, steps=STEPS))
        add_agent(session, "a")
        add_agent(session, "b")
        return add_attempt(session, job_id, ["a", "b"], state=AttemptState.RUNNING)


def send(
    engine: sa.Engine,
    *bodies: ReportBody,
    token: int,
    first: int = 1,
    agent_id: str = "a",
    rank: int = 0,
    now: dt.datetime = NOW,
    elapsed: ElapsedTime = time_by_wall,
) -> Stored:
    reports = [report(first + i, body, token=token, rank=rank) for i, body in enumerate(bodies)]
    batch = ReportBatch(agent_id=agent_id, generation="g", reports=tuple(reports))
    with writing(engine) as session:
        [stored] = store_batches(session, [batch], now=now, elapsed=elapsed)
    return stored


def count(engine: sa.Engine, table: type) -> int:
    with reading(engine) as session:
        return session.scalar(select(func.count()).select_from(table)) or 0


def steps(first_step: int, step_count: int) -> StepTimes:
    times_s = (0.1,) * step_count
    return StepTimes(kind=StepKind.TIMED, first_step=first_step, begun_s=0.0, times_s=times_s)


def epoch(number: int) -> Epoch:
    return Epoch(
        epoch=number,
        train_s=1.0,
        step_count=1,
        train_loss=None,
        val_loss=None,
        val_accuracy_ratio=None,
    )


def test_more_step_times_than_its_job_has_end_the_rank_and_are_not_stored(
    engine: sa.Engine, token: int
) -> None:
    stored = send(engine, *[steps(i * 100_000, 100_000) for i in range(14)], token=token)
    assert (stored.confirmed, stored.admitted_count, stored.late_count) == (14, 0, 14)
    assert stored.moves_attempts
    assert count(engine, StepChunk) == 0
    run_round(engine, now=NOW + seconds(30), rules=RULES)
    with reading(engine) as session:
        attempt = session.get_one(AttemptRow, token)
    assert (attempt.state, attempt.failure_kind) == (AttemptState.LOST, "senseless")
    assert "rank 0 on a: steps up to 100000: its job can have" in (attempt.reason or "")


def test_all_that_an_honest_rank_has_is_taken(engine: sa.Engine, token: int) -> None:
    spec = job_spec(world_size=2, steps=STEPS)
    whole = spec.warmup_step_count + 2 * STEPS + 11  # each epoch ends in a partial step
    now = NOW + seconds(300)
    samples = Samples(samples=tuple(Sample(tick=tick) for tick in range(300)))
    stored = send(engine, steps(0, whole), samples, epoch(STEPS - 1), token=token, now=now)
    assert stored.late_count == 0


@pytest.mark.parametrize(
    "body",
    [
        Samples(samples=(Sample(tick=int(SLACK_S) + 11), Sample(tick=1))),
        epoch(STEPS),
        StepTimes(kind=StepKind.TIMED, first_step=0, begun_s=SLACK_S + 11, times_s=(0.1,)),
        StepTimes(process=1, kind=StepKind.TIMED, first_step=0, begun_s=0.0, times_s=(0.1,)),
        steps(2**31 - 1, 1),
    ],
)
def test_what_its_attempt_can_not_have_had_is_refused(
    engine: sa.Engine, token: int, body: ReportBody
) -> None:
    stored = send(engine, body, token=token, now=NOW + seconds(10))
    assert (stored.confirmed, stored.late_count) == (1, 1)
    tables = (SampleRow, EpochRow, StepChunk)
    assert [count(engine, table) for table in tables] == [0, 0, 0]


def test_a_rank_is_heard_of_samples_when_the_servers_clock_is_set_back(
    engine: sa.Engine, token: int
) -> None:
    monotonic_s = 1000.0
    elapsed = ElapsedTimes(lambda: monotonic_s)

    def samples(tick: int) -> Samples:
        return Samples(samples=(Sample(tick=tick),))

    later = NOW + seconds(3000)
    assert send(engine, samples(3000), token=token, now=later, elapsed=elapsed).late_count == 0
    monotonic_s += 100.0
    back = later - seconds(2800)
    one = send(engine, samples(3100), token=token, first=2, now=back, elapsed=elapsed)
    assert one.late_count == 0
    beyond = samples(3100 + int(SLACK_S) + 1)
    assert send(engine, beyond, token=token, first=3, now=back, elapsed=elapsed).late_count == 1


def test_a_clock_set_back_before_the_lease_leaves_the_jobs_own_limits(
    engine: sa.Engine, token: int
) -> None:
    back = NOW - seconds(3600)
    samples = Samples(samples=(Sample(tick=50),))
    assert send(engine, samples, token=token, now=back).late_count == 0
    limits = rank_limits(job_spec(steps=STEPS), elapsed_s=None)
    assert limits.time_s > job_spec(steps=STEPS).time_limit_s


def test_a_log_is_written_once_and_no_part_over_another(engine: sa.Engine, token: int) -> None:
    parts = [LogPart(first_character=first, text="x" * 1000) for first in (0, 1000, 1, 500, 1999)]
    stored = send(engine, *parts, token=token)
    assert (stored.confirmed, count(engine, LogPartRow)) == (5, 2)


def test_refused_samples_and_logs_cost_the_rank_nothing_else(engine: sa.Engine, token: int) -> None:
    extra = {f"x{number}": 1.0 for number in range(EXTRAS.most + 1)}
    send(engine, Samples(samples=(Sample(tick=1, extra=extra),)), token=token)
    with reading(engine) as session:
        assert session.get_one(RankRow, (token, 0)).ended is None


def test_a_result_as_long_as_a_book_ends_the_rank(engine: sa.Engine, token: int) -> None:
    failure = Failure(kind=FailureKind.KILLED, message="x")
    ended = RankEnded(result=None, failure=failure, timed_begun_s=None, log_tail="")
    fields = to_json(ended)
    assert isinstance(fields, dict)
    body: dict[str, object] = {**fields, "noise": "x" * MOST_BODY_BYTES}
    one = Report(number=1, token=token, rank=0, kind="ended", body=body)
    with writing(engine) as session:
        batch = ReportBatch(agent_id="a", generation="g", reports=(one,))
        assert store_batches(session, [batch], now=NOW)[0].late_count == 1
    with reading(engine) as session:
        stored = session.get_one(RankRow, (token, 0)).ended
    assert stored is not None
    assert stored["failure"]["kind"] == "senseless"


def test_late_and_foreign_reports_beyond_a_few_are_counted_without_their_bodies(
    engine: sa.Engine, token: int
) -> None:
    big = LogPart(first_character=0, text="x" * 30_000)
    for first in (1, 201):
        stored = send(engine, *[big] * 200, token=token + 7, first=first)
        assert (stored.confirmed, stored.late_count) == (first + 199, 200)
    with reading(engine) as session:
        rows = session.scalars(select(LateReport)).all()
        assert len(rows) == KEPT_REPORTS
        assert max(len(json.dumps(row.body)) for row in rows) <= KEPT_BODY_BYTES
        assert late_count(session, agent_id="a") == 400
        assert late_count(session, agent_id="b") == 0


def test_an_attempt_with_more_rows_than_its_job_can_have_is_set_aside_and_others_end(
    engine: sa.Engine,
) -> None:
    """Rows that an earlier version has taken, before it bounded what a rank may report."""
    with writing(engine) as session:
        bad, good = add_gangs(session, [None, None])
        for first in range(100, 1000, 100):
            insert_steps(session, token=bad, rank=0, steps=steps(first, 100))
    run_round(engine, now=NOW + seconds(5), rules=RULES)
    with reading(engine) as session:
        assert "903 step times of its ranks" in (session.get_one(AttemptRow, bad).reason or "")
        states = {a.id: (a.state, a.failure_kind) for a in session.scalars(select(AttemptRow))}
        assert states[bad] == (AttemptState.LOST, "senseless")
        assert states[good] == (AttemptState.SUCCEEDED, None)
        assert session.scalars(select(MeasurementRow.attempt_id)).all() == [good]
        assert session.scalars(select(JobRow.state).order_by(JobRow.id)).all() == [
            JobState.WAITING,
            JobState.SUCCEEDED,
        ]


def test_a_rank_that_measured_its_peers_honestly_is_not_ended(
    engine: sa.Engine, token: int
) -> None:
    assert send(engine, PeersMeasured(rtts=()), token=token).late_count == 0
