"""What is kept of a sweep between two looks at it: the same as if everything were read again."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from farm.cells.reading import SweepReading, first_cells, read_sweep
from farm.gang.lifecycle import AttemptState, JobState
from farm.processes.cache import Cache
from farm.recommend.cache.knowledge import RecommenderCache
from farm.recommend.prices import load_prices
from farm.store.engine import reading, writing
from farm.store.measurements.cell_rows import CellTotals
from farm.store.sweeps.jobs import request_cancel_sweep, retry_failed
from farm.store.sweeps.sweeps import add_jobs
from farm.store.tables import AttemptRow, JobRow
from tests import factories
from tests.e2e.live_farm import wait_until
from tests.integration.web.pages.test_web_sweep_page import add_measured, grid
from tests.web.web_client import client_of, web_settings
from tests.web.web_reading import page_of, read
from web import backend
from web.advice.sweep_advice import Advice, SweepAdvice
from web.backend import cached_reading

PRICES = load_prices()
LATER = factories.NOW + factories.seconds(600)


def _read(engine: sa.Engine, sweep_id: int, before: SweepReading | None = None) -> SweepReading:
    with reading(engine) as session:
        return read_sweep(session, sweep_id, prices=PRICES, before=before)


def _end(engine: sa.Engine, batch: int, *, step_time_s: float) -> None:
    """Let the waiting job of a batch size be measured on one machine."""
    with writing(engine) as session:
        job = session.scalars(
            sa.select(JobRow).where(
                JobRow.state == JobState.WAITING, JobRow.global_batch_size == batch
            )
        ).one()
        job.state, job.finished_at = JobState.SUCCEEDED, LATER
        factories.add_measurement(
            session,
            f"job {job.id}",
            job_id=job.id,
            global_batch_size=batch,
            step_time_s=step_time_s,
            throughput_examples_per_s=batch / step_time_s,
            fingerprint="a kind",
        )


def test_what_is_kept_is_what_is_read_anew(engine: sa.Engine) -> None:
    sweep_id = add_measured(engine, *grid())
    first = _read(engine, sweep_id)
    with writing(engine) as session:
        more = [factories.job_spec(global_batch_size=64, repetition=3, seed=3)]
        add_jobs(session, sweep_id, more, priority=0, now=LATER)
    added = _read(engine, sweep_id, first)
    assert added.table.lines == _read(engine, sweep_id).table.lines
    assert len(added.table.lines[0].repetitions) == 4
    # Nothing else has changed, so nothing else was worked out again.
    assert [a is b for a, b in zip(first.table.lines, added.table.lines, strict=True)] == [
        False,
        *[True] * 5,
    ]
    _end(engine, 64, step_time_s=0.5)
    ended = _read(engine, sweep_id, added)
    fresh = _read(engine, sweep_id)
    assert ended.table.lines == fresh.table.lines
    assert ended.table.machine_s == fresh.table.machine_s
    # A baseline has changed, and with it the efficiency of the gangs.
    assert ended.table.lines[1].efficiency_ratio != added.table.lines[1].efficiency_ratio


def test_a_new_cell_is_found(engine: sa.Engine) -> None:
    sweep_id = add_measured(engine, *grid())
    first = _read(engine, sweep_id)
    with writing(engine) as session:
        more = [factories.job_spec(global_batch_size=32)]
        add_jobs(session, sweep_id, more, priority=0, now=LATER)
    found = _read(engine, sweep_id, first)
    assert found.table.lines == _read(engine, sweep_id).table.lines
    assert len(found.table.lines) == 7


def test_cancelled_and_retried_jobs_are_found(engine: sa.Engine) -> None:
    sweep_id = add_measured(engine, *grid())
    with writing(engine) as session:
        more = [factories.job_spec(global_batch_size=32)]
        add_jobs(session, sweep_id, more, priority=0, now=LATER)
    waiting = _read(engine, sweep_id)
    with writing(engine) as session:
        request_cancel_sweep(session, sweep_id, now=LATER)
    cancelled = _read(engine, sweep_id, waiting)
    assert cancelled.table.lines == _read(engine, sweep_id).table.lines
    with writing(engine) as session:
        retry_failed(session, sweep_id, now=LATER)
    again = _read(engine, sweep_id, cancelled)
    assert again.table.lines == waiting.table.lines


def test_of_a_sweep_that_is_too_large_only_whole_cells_are_told(engine: sa.Engine) -> None:
    sweep_id = add_measured(engine, *grid())
    with reading(engine) as session:
        found = read_sweep(session, sweep_id, prices=PRICES, max_jobs=7)
    assert [len(line.repetitions) for line in found.table.lines] == [3, 3]
    assert found.table.totals == CellTotals(job_count=18, cell_count=6, failed_cell_count=0)


def test_pages_of_a_sweep_that_is_too_large_have_true_counts(
    engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep_id, other_id = add_measured(engine, *grid()), add_measured(engine, *grid())
    with writing(engine) as session:
        for job in session.scalars(sa.select(JobRow).where(JobRow.sweep_id == sweep_id)):
            job.state = JobState.FAILED
    monkeypatch.setattr(backend, "MOST_JOBS", 7)
    client = client_of(engine)
    page = read(page_of(client, f"/sweeps/{sweep_id}"))
    assert "Summed up are the first 2 of 6 cells, as the sweep has 18 jobs" in page
    assert "Shown are the first 2 of 6 cells" in page
    assert "which something failed: 2 of the first 2 cells, 6 of all" in page
    compared = read(page_of(client, f"/sweeps/compare?a={sweep_id}&b={other_id}"))
    assert compared.count("the first 2 of 6 cells are compared") == 2


def test_a_table_is_kept_until_something_changes(engine: sa.Engine) -> None:
    sweep_id = add_measured(engine, *grid())
    cache = Cache(most=8)
    with reading(engine) as session:
        first = cached_reading(cache, session, sweep_id, prices=PRICES)
        assert cached_reading(cache, session, sweep_id, prices=PRICES) is first
    with writing(engine) as session:
        session.scalars(sa.select(JobRow)).first().attempt_count += 1  # type: ignore[union-attr] # there
    with reading(engine) as session:
        renewed = cached_reading(cache, session, sweep_id, prices=PRICES)
    assert renewed is not first
    assert renewed.table.lines == first.table.lines


def test_what_a_lost_attempt_has_cost_is_found(engine: sa.Engine) -> None:
    """Of a job that waits again as it did before, the attempts alone tell that there was one."""
    sweep_id = add_measured(engine, *grid())
    with writing(engine) as session:
        more = [factories.job_spec(global_batch_size=64, repetition=3, seed=3)]
        add_jobs(session, sweep_id, more, priority=0, now=LATER)
    first = _read(engine, sweep_id)
    with writing(engine) as session:
        job = session.scalars(sa.select(JobRow).where(JobRow.state == JobState.WAITING)).one()
        job.attempt_count = 1
        session.add(
            AttemptRow(
                job_id=job.id,
                number=1,
                state=AttemptState.LOST,
                state_since=LATER,
                leased_at=LATER,
                ended_at=LATER + factories.seconds(30.5),
            )
        )
    again = _read(engine, sweep_id, first)
    assert again.table.machine_s == pytest.approx(first.table.machine_s + 30.5, abs=0.001)
    assert again.spent_s == _read(engine, sweep_id).spent_s


def test_the_first_cells_are_whole(engine: sa.Engine) -> None:
    sweep_id = add_measured(engine, *grid())
    found = []
    for max_jobs in (6, 7, None):
        with reading(engine) as session:
            found.append(first_cells(session, _read(engine, sweep_id), max_jobs=max_jobs))
    six, seven, everything = found
    assert six == seven
    assert six.cells == everything.cells[: len(six.cells)]
    assert sum(len(cell.line.repetitions) for cell in six.cells) == 6
    assert [one.is_complete for one in found] == [False, False, True]


def test_advice_that_takes_long_is_made_beside_the_request(engine: sa.Engine) -> None:
    sweep_id = add_measured(engine, *grid())
    cache = RecommenderCache.of_server(web_settings().home)
    at_once, beside = SweepAdvice(engine, cache), SweepAdvice(engine, cache, many=0)

    def ask() -> list[Advice] | None:
        with reading(engine) as session:
            found = beside.of_sweep(session, sweep_id)
        return None if found is None else list(found)

    assert ask() is None
    found = wait_until(ask, "advice was made")
    with reading(engine) as session:
        assert found == list(at_once.of_sweep(session, sweep_id) or ())
    assert [item.question.global_batch_size for item in found or []] == [64, 128]
