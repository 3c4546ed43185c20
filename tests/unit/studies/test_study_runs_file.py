"""The data file of a study."""

from __future__ import annotations

import dataclasses

import pytest

from farm.errors import InvalidSpec
from farm.studies.publishing import read_runs, write_runs
from tests.stored.study_runs import gang_run, study_run, whole_study


def test_what_is_read_is_what_was_written() -> None:
    runs = [
        *whole_study(),
        study_run(flags=("foreign_load", "steal")),
        study_run(status="out_of_memory", step_time_s=None, model=None, cpu_model='An "odd", CPU'),
    ]

    assert read_runs(write_runs(runs), name="x.csv") == runs


def test_no_digit_is_lost() -> None:
    run = gang_run(2, 0.02, step_time_s=0.1 + 0.2, rtt_s=1 / 3)

    assert read_runs(write_runs([run]), name="x.csv") == [run]


@pytest.mark.parametrize(
    ("column", "text", "message"),
    [
        ("world_size", "two", "x.csv line 2 world_size: expected a whole number, got 'two'"),
        ("world_size", "", "x.csv line 2 world_size: expected a whole number, got ''"),
        ("rtt_s", "-1", "x.csv line 2 rtt_s: expected a number, 0 or more, or nothing, got '-1'"),
        (
            "step_time_s",
            "nan",
            "x.csv line 2 step_time_s: expected a number, 0 or more, or nothing, got 'nan'",
        ),
        (
            "measured_at",
            "2026-03-01T12:00:00",
            "x.csv line 2 measured_at: expected an instant with its time zone, got "
            "'2026-03-01T12:00:00'",
        ),
    ],
)
def test_a_wrong_cell_is_named(column: str, text: str, message: str) -> None:
    head, row = write_runs([study_run()]).splitlines()
    cells = dict(zip(head.split(","), row.split(","), strict=True)) | {column: text}

    with pytest.raises(InvalidSpec) as refused:
        read_runs(f"{head}\n{','.join(cells.values())}\n", name="x.csv")
    assert str(refused.value) == message


@pytest.mark.parametrize("change", ["a cell less", "a cell more"])
def test_a_line_of_another_length_is_named(change: str) -> None:
    head, row = write_runs([study_run()]).splitlines()
    row = row.rpartition(",")[0] if change == "a cell less" else row + ",1"
    count = len(dataclasses.fields(study_run()))

    with pytest.raises(InvalidSpec, match=rf"x\.csv line 2: expected {count} cells"):
        read_runs(f"{head}\n{row}\n", name="x.csv")


def test_columns_of_another_kind_of_file_are_refused() -> None:
    with pytest.raises(InvalidSpec, match=r"x\.csv line 1: expected the columns job_id,"):
        read_runs("model,world_size\nmlp,1\n", name="x.csv")
