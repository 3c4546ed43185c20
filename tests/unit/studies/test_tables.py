"""Columns of tables of run groups."""

from __future__ import annotations

from farm.studies import tables
from farm.studies.run_groups import RunGroup, run_groups
from farm.studies.text import ms
from tests.stored.study_runs import gang_run, study_run


def group(*times_s: float | None) -> RunGroup:
    runs = [study_run(step_time_s=time_s, repetition=n) for n, time_s in enumerate(times_s)]
    [found] = run_groups(runs, ("world_size",))
    return found


def cells(of: RunGroup, *columns: tables.GroupColumn) -> list[str]:
    row = tables.table_of([of], columns).splitlines()[2]
    return [cell.strip() for cell in row.strip("|").split("|")]


def test_a_group_has_a_line_with_a_cell_for_each_column() -> None:
    text = tables.table_of(
        [group(0.010), group(0.020)],
        [tables.HOSTS_COLUMN, tables.median("step (ms)", "step_time_s", ms)],
    )

    assert text.splitlines() == [
        "| hosts | step (ms) |",
        "| :--- | ---: |",
        "| 1 | 10.0 |",
        "| 1 | 20.0 |",
    ]


def test_what_was_measured_is_summed_up_over_the_runs() -> None:
    columns = (
        tables.median("", "step_time_s", ms),
        tables.mean("", "step_time_s", ms),
        tables.least_to_most("step_time_s", ms),
        tables.RUNS_COLUMN,
    )

    assert cells(group(0.010, 0.011, 0.018), *columns) == ["11.0", "13.0", "10.0 to 18.0", "3"]


def test_what_nobody_measured_is_a_dash() -> None:
    columns = (
        tables.median("", "step_time_s", ms),
        tables.least_to_most("step_time_s", ms),
        tables.interval("step_time_s", ms),
        tables.STALENESS_COLUMN,
        tables.DELAY_COLUMN,
    )

    assert cells(group(None), *columns) == ["-"] * 5


def test_two_runs_have_no_interval() -> None:
    assert cells(group(0.010, 0.012), tables.interval("step_time_s", ms)) == ["-"]
    low, _, high = cells(group(0.010, 0.011, 0.012), tables.interval("step_time_s", ms))[0].split()
    assert float(low) < 11.0 < float(high)


def test_a_gang_stands_at_its_delay() -> None:
    [found] = run_groups([gang_run(2, 0.0125)], ("world_size",))

    assert cells(found, tables.DELAY_COLUMN, tables.HOSTS_COLUMN) == ["12.5", "2"]
