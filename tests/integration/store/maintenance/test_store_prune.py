"""Retention on a real database: what is old goes or gets thin, and nothing else."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable
from contextlib import suppress

import pytest
import sqlalchemy as sa
from sqlalchemy import func, select

from farm.errors import Unreachable
from farm.gang.lifecycle import AttemptState
from farm.messages.reports import LogPart, Sample, StepTimes
from farm.messages.trainer_lines import Epoch, StepKind
from farm.notifications.events import DeliveryState, EventKind
from farm.store.base import Table
from farm.store.engine import reading, writing
from farm.store.maintenance.partitions import make_partitions, partition_days
from farm.store.maintenance.prune import PrunePlan, Retention, plan_prune, prune
from farm.store.notifications import DetectedEvent, add_targets, record
from farm.store.reports.late_reports import KEPT_REPORTS, late_count, set_aside
from farm.store.reports.logs import insert_log_parts
from farm.store.result_tables import (
    EpochRow,
    ImportedSampleRow,
    LogPartRow,
    MeasurementRow,
    SampleRow,
    StepChunk,
)
from farm.store.series.samples import add_samples
from farm.store.tables import (
    AttemptRow,
    JobEvent,
    LateReport,
    NotificationDelivery,
    NotificationEvent,
    SpoolPosition,
)
from tests.factories import NOW, add_agent, add_attempt, add_job, add_measurement, refused_report
from tests.services.postgres_server import wait_until_blocked
from tests.stored.stored_series import insert_epoch, insert_samples, insert_steps, samples_of

DAY = dt.timedelta(days=1)
THIN = Retention(thin_after=30 * DAY, thin_to_ticks=10)
DROP = Retention(drop_after=365 * DAY)

AddAttempt = Callable[..., int]


@pytest.fixture
def add(engine: sa.Engine) -> AddAttempt:
    """Adds an attempt of some days ago with samples of one rank, and returns its token."""

    def add_one(
        *, days_ago: int, ticks: int = 60, state: AttemptState = AttemptState.SUCCEEDED
    ) -> int:
        leased_at = NOW - days_ago * DAY
        with writing(engine) as session:
            token = add_attempt(session, add_job(session), state=state)
            session.get_one(AttemptRow, token).leased_at = leased_at
            samples = [
                Sample(
                    tick=t,
                    cpu_ratio=t / 100,
                    resident_bytes=1000 - t,
                    extra={"gpu0_ratio": 0.5} if t < 10 else {},
                )
                for t in range(ticks)
            ]
            insert_samples(session, day=leased_at.date(), token=token, rank=0, samples=samples)
        return token

    return add_one


def run(engine: sa.Engine, retention: Retention) -> PrunePlan:
    plan = plan_prune(engine, retention, now=NOW)
    prune(engine, plan, progress=lambda done, total: None)
    return plan


def ticks_of(engine: sa.Engine, token: int) -> list[int]:
    with reading(engine) as session:
        return [sample.tick for sample in samples_of(session, token, rank=0)]


def count(engine: sa.Engine, table: type[Table]) -> int:
    with reading(engine) as session:
        return session.scalar(select(func.count()).select_from(table)) or 0


def test_old_samples_become_means_of_ten_seconds(engine: sa.Engine, add: AddAttempt) -> None:
    old, young = add(days_ago=31, ticks=25), add(days_ago=30, ticks=25)
    plan = run(engine, THIN)
    assert (plan.thinned_sample_count, plan.dropped_sample_count) == (22, 0)
    with reading(engine) as session:
        rows = session.scalars(
            select(SampleRow).where(SampleRow.attempt_id == old).order_by(SampleRow.tick)
        ).all()
        assert [(row.tick, row.span_ticks) for row in rows] == [(9, 10), (19, 10), (24, 5)]
        assert [row.cpu_ratio for row in rows] == pytest.approx([0.045, 0.145, 0.22])
        assert [row.resident_bytes for row in rows] == [1000, 990, 980]
        assert [row.extra for row in rows] == [{"gpu0_ratio": 0.5}, None, None]
        assert {row.machine_cpu_ratio for row in rows} == {None}
    assert ticks_of(engine, young) == list(range(25))


def test_thinning_again_finds_nothing_to_do(engine: sa.Engine, add: AddAttempt) -> None:
    old = add(days_ago=31)
    run(engine, THIN)
    before = ticks_of(engine, old)
    assert run(engine, THIN).thinned == ()
    assert ticks_of(engine, old) == before


def test_a_series_longer_than_one_transaction_is_thinned_without_a_seam(
    engine: sa.Engine, add: AddAttempt
) -> None:
    old = add(days_ago=31, ticks=12_345)
    run(engine, Retention(thin_after=30 * DAY, thin_to_ticks=7))
    assert ticks_of(engine, old) == [*range(6, 12_345, 7), 12_344]


def test_thinned_rows_are_drawn_as_the_range_that_they_stand_for(
    engine: sa.Engine, add: AddAttempt
) -> None:
    """Their ticks are ten apart, which is no hole, and the last range is shorter."""
    old = add(days_ago=31, ticks=95)
    with reading(engine) as session:
        before = samples_of(session, old, rank=0, max_points=10)
    run(engine, THIN)
    with reading(engine) as session:
        for max_points in (2000, 10):
            drawn = samples_of(session, old, rank=0, max_points=max_points)
            assert [s.tick for s in drawn] == [s.tick for s in before] == list(range(0, 100, 10))
            assert [s.cpu_ratio for s in drawn] == pytest.approx([s.cpu_ratio for s in before])
            assert drawn[0].extra == {"gpu0_ratio": 0.5}
        coarser = samples_of(session, old, rank=0, max_points=3)
    assert [s.tick for s in coarser] == [0, 40, 80]


def test_an_active_attempt_is_never_touched(engine: sa.Engine, add: AddAttempt) -> None:
    make_partitions(engine, today=(NOW - 400 * DAY).date())
    active = add(days_ago=400, state=AttemptState.RUNNING)
    ended = add(days_ago=400)
    plan = run(engine, Retention(thin_after=DAY, drop_after=2 * DAY))
    assert plan.partitions == () or (NOW - 400 * DAY).date() not in plan.partitions
    assert ticks_of(engine, active) == list(range(60))
    assert ticks_of(engine, ended) == []


def test_very_old_samples_are_dropped_and_what_was_measured_stays(
    engine: sa.Engine, add: AddAttempt
) -> None:
    old, young = add(days_ago=367), add(days_ago=365)
    steps = StepTimes(kind=StepKind.TIMED, first_step=0, begun_s=0.0, times_s=(0.1,))
    epoch = Epoch(
        epoch=0, train_s=1.0, step_count=1, train_loss=None, val_loss=None, val_accuracy_ratio=None
    )
    with writing(engine) as session:
        insert_steps(session, token=old, rank=0, steps=steps)
        insert_epoch(session, token=old, rank=0, epoch=epoch)
        add_measurement(session, "job 1", created_at=NOW - 367 * DAY)
        session.add(JobEvent(job_id=1, at=NOW - 367 * DAY, event="job: succeeded"))
    assert run(engine, DROP).dropped_sample_count == 60
    assert (ticks_of(engine, old), len(ticks_of(engine, young))) == ([], 60)
    for table in (StepChunk, EpochRow, MeasurementRow, JobEvent):
        assert count(engine, table) == 1
    assert count(engine, AttemptRow) == 2


def test_logs_go_with_the_samples_of_their_attempts(engine: sa.Engine, add: AddAttempt) -> None:
    old, active = add(days_ago=367), add(days_ago=367, state=AttemptState.RUNNING)
    young = add(days_ago=365)
    with writing(engine) as session:
        # Of the day from which on samples stay, too.
        session.get_one(AttemptRow, young).leased_at -= dt.timedelta(hours=6)
        for token in (old, active, young):
            for n in range(600 if token == old else 1):
                part = LogPart(first_character=n, text="x")
                insert_log_parts(session, token=token, rank=0, parts=[part])
    plan = run(engine, DROP)
    assert plan.log_part_count == 600
    with reading(engine) as session:
        left = session.scalars(select(LogPartRow.attempt_id).order_by(LogPartRow.attempt_id))
        assert list(left) == sorted([active, young])
    assert run(engine, DROP).log_part_count == 0


def test_imported_samples_go_by_the_age_of_their_import(engine: sa.Engine) -> None:
    row = {"job_id": 1, "attempt_id": 1, "rank": 0, "span_ticks": 1}
    samples = [{**row, "tick": tick} for tick in range(3)]
    with writing(engine) as session:
        for origin, days_ago in (("old", 400), ("renewed", 400), ("renewed", 1)):
            at = NOW - days_ago * DAY
            add_measurement(session, f"row {days_ago}", origin=origin, created_at=at)
            add_samples(session, origin, samples)
    assert run(engine, DROP).imported_sample_count == 3
    with reading(engine) as session:
        left = session.scalars(select(ImportedSampleRow.__table__.c.origin)).all()
    assert left == ["renewed"] * 3
    assert count(engine, MeasurementRow) == 3


def test_messages_that_are_sent_no_more_go_and_none_is_sent_again(engine: sa.Engine) -> None:
    ages = [400 * DAY, 400 * DAY, 400 * DAY, 5 * DAY]
    with writing(engine) as session:
        add_targets(session, ["https://example.org"], ["s"], sweep_id=None, now=NOW - 500 * DAY)
        events = [
            DetectedEvent(kind=EventKind.AGENT_LOST, subject=f"agent {n}", at=NOW - age, data={})
            for n, age in enumerate(ages)
        ]
        record(session, events, now=NOW - 400 * DAY)
        deliveries = session.scalars(
            select(NotificationDelivery).order_by(NotificationDelivery.id)
        ).all()
        for delivery, age in zip(deliveries, ages, strict=True):
            delivery.state, delivery.last_at = DeliveryState.DELIVERED, NOW - age
        deliveries[0].state = DeliveryState.GIVEN_UP
        deliveries[2].state = DeliveryState.WAITING
        kept = [deliveries[2].id, deliveries[3].id]
    for drop_after, dropped_count in ((365 * DAY, 2), (DAY, 0)):
        assert run(engine, Retention(drop_after=drop_after)).notification_count == dropped_count
        with reading(engine) as session:
            assert session.scalars(select(NotificationDelivery.id)).all() == kept
    with writing(engine) as session:
        assert count(engine, NotificationEvent) == 2
        # A scheduler that begins finds the events of a week again.
        assert record(session, events[2:], now=NOW) == 0


def test_a_plan_changes_nothing_and_says_what_would_go(engine: sa.Engine, add: AddAttempt) -> None:
    for days_ago in (400, 400, 40):
        add(days_ago=days_ago)
    before = count(engine, SampleRow)
    plan = plan_prune(engine, Retention(drop_after=365 * DAY, thin_after=30 * DAY), now=NOW)
    assert (plan.dropped_sample_count, plan.thinned_sample_count) == (120, 54)
    assert count(engine, SampleRow) == before
    seen: list[tuple[int, int]] = []
    prune(engine, plan, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (180, 180)
    assert count(engine, SampleRow) == 6


@pytest.mark.parametrize("database_kind", ["postgresql"])
def test_whole_days_are_dropped_as_partitions_empty_ones_too(
    engine: sa.Engine, add: AddAttempt
) -> None:
    first = (NOW - 400 * DAY).date()
    make_partitions(engine, today=first)
    add(days_ago=400)
    plan = run(engine, DROP)
    assert plan.partitions == tuple(first + n * DAY for n in range(8))
    with reading(engine) as session:
        assert partition_days(session) == []
    assert count(engine, SampleRow) == 0


@pytest.mark.parametrize("database_kind", ["postgresql"])
def test_a_partition_that_others_hold_is_one_line(engine: sa.Engine, add: AddAttempt) -> None:
    make_partitions(engine, today=(NOW - 400 * DAY).date())
    add(days_ago=400)
    plan = plan_prune(engine, DROP, now=NOW)
    with reading(engine) as reader:
        reader.execute(select(SampleRow.tick)).all()
        with pytest.raises(Unreachable, match="held by another transaction"):
            prune(engine, plan, progress=lambda done, total: None, drop_tries=1)


def test_late_reports_and_forgotten_spools_go_with_the_samples(engine: sa.Engine) -> None:
    long_ago, lately = NOW - 400 * DAY, NOW - DAY
    with writing(engine) as session:
        add_agent(session, "here")
        add_agent(session, "gone", heartbeat_at=long_ago)
        for number, received_at in enumerate([long_ago] * 600 + [lately]):
            session.add(
                LateReport(
                    agent_id="here",
                    generation="g",
                    number=number,
                    token=1,
                    rank=0,
                    kind="samples",
                    body={},
                    received_at=received_at,
                    reason="late",
                )
            )
        for agent_id, generation, updated_at in [
            ("here", "replaced", long_ago - DAY),
            ("here", "its last, though it had nothing to say since", long_ago),
            ("gone", "its last", long_ago),
            ("never seen", "g", long_ago),
            ("never seen either", "g", lately),
        ]:
            session.add(
                SpoolPosition(
                    agent_id=agent_id,
                    generation=generation,
                    confirmed_number=5,
                    updated_at=updated_at,
                )
            )
    plan = run(engine, DROP)
    assert (plan.late_report_count, plan.spool_position_count) == (600, 3)
    assert count(engine, LateReport) == 1
    with reading(engine) as session:
        left = set(session.execute(select(SpoolPosition.agent_id, SpoolPosition.generation)))
    assert {agent_id for agent_id, _ in left} == {"here", "never seen either"}
    assert len(left) == 2


def test_new_reports_that_did_not_count_go_when_that_is_asked_for(engine: sa.Engine) -> None:
    refused = [refused_report(number) for number in range(KEPT_REPORTS + 7)]
    with writing(engine) as session:
        session.add(SpoolPosition(agent_id="a", generation="g", confirmed_number=1, updated_at=NOW))
        session.flush()
        set_aside(session, refused, now=NOW - dt.timedelta(minutes=1))
    assert run(engine, DROP).late_report_count == 0
    plan = run(engine, Retention(drop_late_reports=True))
    assert plan.late_report_count == KEPT_REPORTS + 7
    with reading(engine) as session:
        assert late_count(session) == 0


@pytest.mark.parametrize("database_kind", ["postgresql"])
def test_two_at_once_do_not_get_in_each_others_way(engine: sa.Engine, add: AddAttempt) -> None:
    old = add(days_ago=31)
    plan = plan_prune(engine, THIN, now=NOW)
    surprises: list[BaseException] = []

    def prune_too() -> None:
        try:
            prune(engine, plan, progress=lambda done, total: None)
        except BaseException as error:
            surprises.append(error)

    threads = [threading.Thread(target=prune_too) for _ in range(2)]
    with writing(engine) as session:
        session.execute(select(SampleRow.tick).with_for_update())
        for thread in threads:
            thread.start()
        wait_until_blocked(engine, count=2)
    for thread in threads:
        thread.join(timeout=30)
    assert surprises == []
    assert ticks_of(engine, old) == [9, 19, 29, 39, 49, 59]


def test_a_range_of_thinned_rows_weighs_each_by_the_ticks_that_it_stands_for(
    engine: sa.Engine, add: AddAttempt
) -> None:
    old = add(days_ago=31, ticks=14)
    run(engine, THIN)
    with reading(engine) as session:
        [drawn] = samples_of(session, old, rank=0, max_points=1)
    assert drawn.cpu_ratio == pytest.approx(sum(range(14)) / 100 / 14)


def test_collectors_go_on_storing_while_it_works(engine: sa.Engine, add: AddAttempt) -> None:
    """No transaction of it may hold the one write lock of SQLite for longer than a moment."""
    for _ in range(4):
        add(days_ago=31, ticks=10_000)
    today = add(days_ago=0, ticks=0, state=AttemptState.RUNNING)
    plan = plan_prune(engine, THIN, now=NOW)
    stored = 0
    worker = threading.Thread(
        target=prune, args=(engine, plan), kwargs={"progress": lambda done, total: None}
    )
    worker.start()
    while worker.is_alive():
        with suppress(Unreachable):  # on a busy machine its turn may come late; it tries again
            with writing(engine) as session:
                sample = Sample(tick=stored)
                insert_samples(session, day=NOW.date(), token=today, rank=0, samples=[sample])
            stored += 1
    worker.join(timeout=60)
    assert stored >= 4
    assert len(ticks_of(engine, today)) == stored
    assert count(engine, SampleRow) == 4000 + stored
