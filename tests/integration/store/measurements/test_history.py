"""The history of a cell: its points, what they are compared with, and what changed in between."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from farm.cells.comparison import compare_sweeps
from farm.cells.history import CellHistory, read_history
from farm.cells.reading import read_sweep
from farm.errors import NotFound
from farm.gang.lifecycle import JobState
from farm.recommend.prices import Prices
from farm.store.engine import reading, writing
from farm.store.measurements.history import cells_over_days
from farm.store.tables import JobRow
from tests.factories import NOW, add_measurement, add_sweep, job_spec
from tests.stored.histories import BEFORE, SLOWER, add_day, hardware


@pytest.fixture
def history(engine: sa.Engine) -> Callable[..., CellHistory]:
    """Reads the history of the cell of the store's first job, unless told another."""

    def read(job_id: int = 1, **page: Any) -> CellHistory:
        with reading(engine) as session:
            return read_history(session, job_id, **page)

    return read


def test_a_slower_day_is_marked_with_the_version_that_changed(
    engine: sa.Engine, history: Callable[..., CellHistory]
) -> None:
    with writing(engine) as session:
        add_day(session, 0, *BEFORE)
        add_day(session, 1, *SLOWER, framework="torch 2.13.1", fingerprint="a kind")
    first, second = history().points
    assert (first.verdict_text, first.changes) == ("first on these machines", ())
    assert (second.verdict_text, second.changes) == ("slower", ("torch 2.13.0 -> 2.13.1",))
    assert second.before is first
    assert second.ratio is not None
    assert second.ratio.low is not None
    assert 1 < second.ratio.low < 1.2 < (second.ratio.high or 0)
    assert second.measured_at == NOW + dt.timedelta(days=1)


def test_every_version_that_is_known_of_both_is_said(
    engine: sa.Engine, history: Callable[..., CellHistory]
) -> None:
    old = hardware(accelerator_software={"driver": "550.1"}, tensorflow_version="2.20.0")
    new = hardware(
        accelerator_software={"driver": "560.2", "CUDA": "12.4"},
        tensorflow_version="2.21.0",
        kernel="6.2.0",
        benchfarm_version="0.2.0",
        python_version="3.12.1",
    )
    with writing(engine) as session:
        add_day(session, 0, *BEFORE, ranks=[old], sha256="a" * 64)
        add_day(session, 1, *BEFORE, ranks=[new, old], fingerprint="other", sha256="b" * 64)
        add_day(session, 2, *BEFORE, framework=None, ranks=[new, old], fingerprint="other")
    _, second, third = history().points
    assert set(second.changes) == {
        "driver 550.1 -> 550.1 + 560.2",
        "TensorFlow 2.20.0 -> 2.20.0 + 2.21.0",
        "kernel 6.1.0 -> 6.1.0 + 6.2.0",
        "Benchfarm 0.1.0 -> 0.1.0 + 0.2.0",
        "Python 3.11.7 -> 3.11.7 + 3.12.1",
        f"script {'a' * 12} -> {'b' * 12}",
    }
    assert second.verdict_text == "within noise"
    assert third.changes == ()


def test_only_the_same_machines_are_compared(
    engine: sa.Engine, history: Callable[..., CellHistory]
) -> None:
    other = [hardware(cpu_model="Another CPU")]
    with writing(engine) as session:
        add_day(session, 0, *BEFORE)
        add_day(session, 1, *SLOWER, ranks=other, fingerprint="other")
        add_day(session, 2, *BEFORE, ranks=[], fingerprint="unknown")
        add_day(session, 3, *SLOWER)
    points = history().points
    assert [point.verdict_text for point in points] == [*["first on these machines"] * 3, "slower"]
    assert points[3].before is points[0]
    assert points[2].machine is None


def test_what_was_measured_on_two_versions_in_one_sweep_is_two_points(
    engine: sa.Engine, history: Callable[..., CellHistory]
) -> None:
    with writing(engine) as session:
        job_ids = add_day(session, 0, *BEFORE, *SLOWER)
        session.execute(
            sa.text("UPDATE measurements SET framework = 'torch 2.13.1' WHERE job_id > :last"),
            {"last": job_ids[2]},
        )
    assert [point.verdict_text for point in history().points] == [
        "first on these machines",
        "slower",
    ]


def test_points_are_no_surer_than_their_evidence(
    engine: sa.Engine, history: Callable[..., CellHistory]
) -> None:
    flags = [{"kind": "foreign_load", "message": "busy", "value": None}]
    with writing(engine) as session:
        add_day(session, 0, *BEFORE)
        add_day(session, 1, *SLOWER, flags=flags)
        add_day(session, 2, 0.2)
        add_day(session, 3, failed_count=2)
        add_day(session, 4)
        add_day(session, 5, *SLOWER)
    points = history().points
    assert [point.verdict_text for point in points] == [
        "first on these machines",
        "disturbed",
        "too few repetitions",
        "failed",
        "waiting",
        "slower",
    ]
    assert points[5].before is points[0]
    assert points[3].measured_at is None


def test_a_clock_that_steps_back_and_sweeps_at_once_leave_the_order_of_storing(
    engine: sa.Engine, history: Callable[..., CellHistory]
) -> None:
    with writing(engine) as session:
        add_day(session, 5, *BEFORE)
        add_day(session, -5, *SLOWER)
        add_day(session, 0, *BEFORE)
    points = history().points
    assert [point.sweep_id for point in points] == [1, 2, 3]
    assert [point.verdict_text for point in points][1:] == ["slower", "faster"]


def test_versions_of_a_script_are_one_cell_and_other_scripts_are_not(
    engine: sa.Engine, history: Callable[..., CellHistory]
) -> None:
    def script(version: str, rest: str = " --fast") -> Any:
        model = f"script:train.py@{version}{rest}"
        return job_spec(model=model, dataset="script", strategy="torch_script")

    with writing(engine) as session:
        add_day(session, 0, *BEFORE, spec=script("a" * 12))
        add_day(session, 1, *SLOWER, spec=script("b" * 12))
        add_day(session, 1, *SLOWER, spec=script("b" * 12, " --slow"))
    for job_id in (1, 4):
        points = history(job_id).points
        assert [point.sweep_id for point in points] == [1, 2]
        assert points[1].changes == (f"script {'a' * 12} -> {'b' * 12}",)
    with reading(engine) as session:
        [cell] = cells_over_days(session, 2, limit=10)
        assert (cell.job_id, cell.day_count, cell.measurement_count) == (4, 2, 6)
        assert not cells_over_days(session, 3, limit=10)


def test_pages_of_sweeps_follow_each_other_and_know_what_went_before(
    engine: sa.Engine, history: Callable[..., CellHistory]
) -> None:
    with writing(engine) as session:
        for day in range(5):
            add_day(session, day, *(SLOWER if day == 3 else BEFORE))
    newest = history(limit=2)
    assert [(p.sweep_id, p.verdict_text) for p in newest.points] == [(4, "slower"), (5, "faster")]
    older = history(limit=2, before_id=newest.next_id)
    assert [point.sweep_id for point in older.points] == [2, 3]
    oldest = history(limit=2, before_id=older.next_id)
    assert [point.sweep_id for point in oldest.points] == [1]
    assert oldest.next_id is None
    assert history(before_id=1).points == []


def test_of_a_sweep_with_very_many_repetitions_the_latest_count(
    engine: sa.Engine, history: Callable[..., CellHistory]
) -> None:
    with writing(engine) as session:
        add_day(session, 0, *[9.0] * 20, *[0.1] * 100)
    [point] = history().points
    assert (point.line.repetition_count, point.line.median_s) == (100, 0.1)


def test_imported_measurements_are_of_no_cell(
    engine: sa.Engine, history: Callable[..., CellHistory]
) -> None:
    with writing(engine) as session:
        add_day(session, 0, *BEFORE)
        add_measurement(session, "row 1", origin="a study", created_at=NOW + dt.timedelta(days=3))
        assert not cells_over_days(session, 1, limit=10)
    assert len(history().points) == 1


def test_a_job_that_is_not_there_or_that_another_version_wrote(
    engine: sa.Engine, history: Callable[..., CellHistory]
) -> None:
    with pytest.raises(NotFound, match="job 1 does not exist"):
        history()
    with writing(engine) as session:
        add_day(session, 0, *BEFORE)
        job = session.get_one(JobRow, 1)
        job.spec = {**job.spec, "model": "script:x.py", "unknown": 1}
    assert len(history().points) == 1


def test_a_history_says_what_the_check_of_the_two_sweeps_says(
    engine: sa.Engine, history: Callable[..., CellHistory]
) -> None:
    cells = [job_spec(global_batch_size=batch) for batch in (32, 64)]
    with writing(engine) as session:
        for name, factor in (("before", 1.0), ("after", 1.03)):
            specs = [dataclasses.replace(cell, repetition=n) for n in range(4) for cell in cells]
            for place, job_id in enumerate(add_sweep(session, *specs, name=name)):
                session.get_one(JobRow, job_id).state = JobState.SUCCEEDED
                add_measurement(
                    session,
                    f"job {job_id}",
                    job_id=job_id,
                    fingerprint="a kind",
                    step_time_s=factor * (0.1 + place % 3 / 1000 + place / 10_000),
                )
    with reading(engine) as session:
        tables = [read_sweep(session, sweep_id, prices=Prices()).table for sweep_id in (1, 2)]
    [pair, _] = compare_sweeps(*tables).pairs
    point = history().points[1]
    assert pair.ratio is not None
    assert point.ratio == pair.ratio
    assert point.verdict is pair.change()
