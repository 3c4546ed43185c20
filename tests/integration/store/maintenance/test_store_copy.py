"""Moving a store between databases of either kind: everything, exactly, or nothing."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
import sqlalchemy as sa
from sqlalchemy import delete, func, select

from farm.configuration.bundle import ScriptBundle
from farm.errors import FarmError, Unreachable
from farm.gang.lifecycle import AttemptState, RankPhase
from farm.keys.api_tokens import Scope
from farm.messages.reports import LogPart, Sample, StepTimes
from farm.messages.trainer_lines import Epoch, StepKind
from farm.notifications.events import EventKind
from farm.store.base import Table
from farm.store.engine import make_engine, reading, writing
from farm.store.identity import own_identity
from farm.store.maintenance.copy import CopiedTable, copy_store
from farm.store.maintenance.partitions import partition_days
from farm.store.notifications import DetectedEvent, add_targets, record
from farm.store.reports.logs import insert_log_parts
from farm.store.schema import check_schema
from farm.store.series.samples import add_samples
from farm.store.sweeps.baselines import set_baseline
from farm.store.sweeps.bundles import add_bundle
from farm.store.tables import (
    AgentKeyRow,
    ApiToken,
    AttemptRow,
    IdempotentAnswer,
    JobEvent,
    JobRow,
    LateReport,
    SpoolPosition,
    SweepRow,
)
from farm.store.tracker_cursors import start_cursor
from tests.factories import NOW, add_agent, add_attempt, add_job, add_measurement, add_sweep
from tests.integration.conftest import new_database
from tests.stored.stored_series import insert_epoch, insert_samples, insert_steps

LATER = NOW + dt.timedelta(hours=1)
NewEngine = Callable[..., sa.Engine]


@pytest.fixture
def new_engine(request: pytest.FixtureRequest) -> Iterator[NewEngine]:
    """Makes engines of new databases of a kind, empty or migrated."""
    with ExitStack() as stack:

        def make(kind: str, *, is_migrated: bool = False) -> sa.Engine:
            url = stack.enter_context(new_database(request, kind, is_migrated=is_migrated))
            engine = make_engine(url)
            stack.callback(engine.dispose)
            return engine

        yield make


@pytest.fixture(params=["sqlite", "postgresql"])
def target(request: pytest.FixtureRequest, new_engine: NewEngine) -> sa.Engine:
    """An empty database of either kind."""
    return new_engine(request.param)


def fill(engine: sa.Engine) -> None:
    """At least a row in every table, with all that a column may hold."""
    own_identity(engine)
    with writing(engine) as session:
        add_agent(session, "a ä \N{SNOWMAN}", heartbeat_at=None, clock_offset_s=-1e-17)
        add_agent(session, "B", unclean_token=7)
        job_id = add_job(session, reason='said "no"\t\\N\nand left')
        token = add_attempt(
            session,
            job_id,
            ["B", "a ä \N{SNOWMAN}"],
            state=AttemptState.LOST,
            phase=RankPhase.ENDED,
        )
        session.add(JobEvent(job_id=job_id, attempt_id=token, at=NOW, event="job: leased"))
        add_measurement(session, "job 1", job_id=job_id, step_time_s=1 / 3, rtt_s=5e-324)
        samples = [
            Sample(tick=0, cpu_ratio=0.1 + 0.2, resident_bytes=2**40, extra={"gpu0_ratio": 0.1}),
            *(Sample(tick=t) for t in range(1, 6000)),
        ]
        insert_samples(session, day=NOW.date(), token=token, rank=0, samples=samples)
        other = {"job_id": 1, "attempt_id": 2, "rank": 0, "tick": 3, "cpu_ratio": 1 / 3}
        add_samples(session, "another farm", [{**other, "extra": {"celsius": 0.1}}])
        steps = StepTimes(kind=StepKind.TIMED, first_step=0, begun_s=0.0, times_s=(0.1, 1 / 7))
        insert_steps(session, token=token, rank=0, steps=steps)
        epoch = Epoch(
            epoch=0,
            train_s=1.0,
            step_count=7,
            train_loss=float("inf"),
            val_loss=None,
            val_accuracy_ratio=0.0,
        )
        insert_epoch(session, token=token, rank=0, epoch=epoch)
        for n in range(300):
            part = LogPart(first_character=n, text="\N{SNOWMAN}" if n else "\t\\N\n")
            insert_log_parts(session, token=token, rank=0, parts=[part])
        session.add(AgentKeyRow(agent_id="B", number=2, made_at=NOW, previous_until=NOW))
        sweep_id = session.get_one(JobRow, job_id).sweep_id
        add_targets(session, ["https://a.example/"], ["whsec_"], sweep_id=sweep_id, now=NOW)
        session.flush()
        event = DetectedEvent(
            kind=EventKind.SWEEP_FINISHED, subject="sweep 1", at=NOW, sweep_id=sweep_id, data={}
        )
        record(session, [event], now=NOW)
        start_cursor(session, "mlflow", now=NOW)
        set_baseline(session, "main \N{SNOWMAN}", sweep_id, now=NOW)
        session.add(
            ApiToken(
                name="ci",
                scope=Scope.SUBMIT,
                secret_hash="0" * 64,
                created_at=NOW,
                expires_at=NOW + dt.timedelta(days=30),
            ),
        )
        add_bundle(session, ScriptBundle({"train.py": bytes(range(256))}), now=NOW)
        session.add(
            IdempotentAnswer(name="0" * 64, request_digest="1" * 64, begun_at=NOW, body=b"\0")
        )
        session.add(
            SpoolPosition(agent_id="B", generation="g", confirmed_number=2**40, updated_at=NOW)
        )
        session.add(
            LateReport(
                agent_id="B",
                generation="g",
                number=3,
                token=2**50,
                rank=0,
                kind="samples",
                body={"b": [1, 2.5, None, "ü"], "a": {}},
                received_at=NOW.replace(microsecond=1),
                reason="late",
            )
        )


def copy(source: sa.Engine, target: sa.Engine, *, is_forced: bool = False) -> list[CopiedTable]:
    return copy_store(
        source, target, now=LATER, is_forced=is_forced, progress=lambda done, total: None
    )


def contents(engine: sa.Engine) -> dict[str, list[str]]:
    """Every row of every table, in an order that no database decides."""
    with reading(engine) as session:
        return {
            table.name: sorted(repr(tuple(row)) for row in session.execute(select(table)))
            for table in Table.metadata.sorted_tables
        }


def row_count(engine: sa.Engine) -> int:
    return sum(map(len, contents(engine).values()))


def test_every_row_of_every_table_arrives_as_it_was(engine: sa.Engine, target: sa.Engine) -> None:
    fill(engine)
    before = contents(engine)
    assert all(before.values())
    copied = copy(engine, target)
    assert {table.name: table.row_count for table in copied} == {
        name: len(rows) for name, rows in before.items()
    }
    assert contents(target) == before == contents(engine)
    check_schema(target)


def test_there_and_back_again_is_the_same_store(engine: sa.Engine, new_engine: NewEngine) -> None:
    fill(engine)
    between = new_engine("postgresql")
    there = copy(engine, between)
    back = copy(between, new_engine("sqlite"))
    assert there == back


def test_the_copy_goes_on_numbering_where_the_source_was(
    engine: sa.Engine, target: sa.Engine
) -> None:
    """A token is never used twice, not even one whose attempt is gone from the source."""
    fill(engine)
    with writing(engine) as session:
        gone = add_attempt(session, add_job(session), state=AttemptState.LOST, number=2)
        session.execute(delete(AttemptRow).where(AttemptRow.id == gone))
    copy(engine, target)
    with writing(target) as session:
        job_id = add_job(session)
        assert add_attempt(session, job_id) > gone
        assert job_id == session.scalar(select(func.max(JobRow.id))) == 3
        session.add(JobEvent(job_id=job_id, at=NOW, event="job: leased"))


def test_an_empty_store_can_be_copied_and_used(engine: sa.Engine, target: sa.Engine) -> None:
    assert sum(table.row_count for table in copy(engine, target)) == 0
    with writing(target) as session:
        add_attempt(session, add_job(session))


def test_a_target_with_rows_is_refused_and_stays_as_it_is(
    engine: sa.Engine, new_engine: NewEngine, database_kind: str
) -> None:
    fill(engine)
    taken = new_engine(database_kind, is_migrated=True)
    with writing(taken) as session:
        add_agent(session, "a1")
    with pytest.raises(FarmError, match=r"table agents of .* has rows: expected an empty store"):
        copy(engine, taken)
    assert row_count(taken) == 1


@pytest.mark.parametrize("work", ["an attempt", "an agent"])
def test_a_farm_at_work_is_copied_only_by_force(
    engine: sa.Engine, target: sa.Engine, work: str
) -> None:
    with writing(engine) as session:
        if work == "an attempt":
            add_attempt(session, add_job(session))
        else:
            add_agent(session, "a1", heartbeat_at=LATER - dt.timedelta(seconds=4))
    with pytest.raises(FarmError, match=r"the farm is at work .*--force"):
        copy(engine, target)
    copy(engine, target, is_forced=True)
    assert contents(target) == contents(engine)


def test_a_source_without_a_schema_is_refused(empty_engine: sa.Engine, target: sa.Engine) -> None:
    with pytest.raises(Unreachable, match="has schema none"):
        copy(empty_engine, target)


@pytest.mark.parametrize("database_kind", ["sqlite"])
def test_what_the_target_refuses_leaves_it_empty(engine: sa.Engine, new_engine: NewEngine) -> None:
    """SQLite does not hold texts to their length; PostgreSQL does."""
    fill(engine)
    with writing(engine) as session:
        session.execute(sa.update(JobRow).values(failure_kind="x" * 33))
    target = new_engine("postgresql")
    with pytest.raises(FarmError, match=r"table jobs: nothing is copied, since .*long") as error:
        copy(engine, target)
    assert "\n" not in str(error.value)
    assert row_count(target) == 0


@pytest.mark.parametrize("database_kind", ["sqlite"])
def test_a_row_that_reads_back_otherwise_undoes_everything(
    engine: sa.Engine, new_engine: NewEngine
) -> None:
    fill(engine)
    target = new_engine("postgresql", is_migrated=True)
    with writing(target) as session:
        for statement in (
            "CREATE FUNCTION spoil() RETURNS trigger LANGUAGE plpgsql AS "
            "'BEGIN NEW.step_time_s = NEW.step_time_s * 1.0000001; RETURN NEW; END'",
            "CREATE TRIGGER spoil BEFORE INSERT ON measurements FOR EACH ROW "
            "EXECUTE FUNCTION spoil()",
        ):
            session.connection().exec_driver_sql(statement)
    with pytest.raises(FarmError, match="table measurements: nothing is copied"):
        copy(engine, target)
    assert row_count(target) == 0


def test_the_copy_is_of_one_moment(engine: sa.Engine, target: sa.Engine) -> None:
    """What is written meanwhile stays out whole: no sweep without its jobs."""
    with writing(engine) as session:
        add_sweep(session)
    is_written = False

    def write(done: int, total: int) -> None:
        nonlocal is_written
        if not is_written:
            is_written = True
            with writing(engine) as session:
                add_sweep(session)

    copy_store(engine, target, now=LATER, is_forced=False, progress=write)
    assert is_written
    with reading(target) as session:
        assert session.scalar(select(func.count()).select_from(SweepRow)) == 1
        assert session.scalar(select(func.count()).select_from(JobRow)) == 1


def test_progress_ends_at_all_rows_twice(engine: sa.Engine, target: sa.Engine) -> None:
    fill(engine)
    seen: list[tuple[int, int]] = []
    copy_store(
        engine,
        target,
        now=LATER,
        is_forced=False,
        progress=lambda done, total: seen.append((done, total)),
    )
    rows = row_count(engine)
    assert (seen[0], seen[-1]) == ((0, 2 * rows), (2 * rows, 2 * rows))


@pytest.mark.parametrize("database_kind", ["sqlite"])
def test_samples_land_in_the_partition_of_their_day(
    engine: sa.Engine, new_engine: NewEngine
) -> None:
    fill(engine)
    target = new_engine("postgresql")
    copy(engine, target)
    with reading(target) as session:
        assert NOW.date() in partition_days(session)
        homes = session.scalars(sa.text("SELECT DISTINCT tableoid::regclass::text FROM samples"))
        assert list(homes) == [f"samples_{NOW:%Y_%m_%d}"]
