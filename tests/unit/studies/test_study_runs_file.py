"""The data file of a study."""

from __future__ import annotations

import pytest

from farm.errors import InvalidSpec
from farm.measuring.study_run import COLUMNS, FIRST_COLUMNS
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


def test_a_file_from_before_an_axis_has_what_jobs_had_then() -> None:
    text = write_runs([gang_run(2, 0.02, server_count=1, accuracy=0.9)])
    rows = [line.split(",")[: len(FIRST_COLUMNS)] for line in text.splitlines()]

    [run] = read_runs("\n".join(map(",".join, rows)), name="x.csv")
    assert (run["server_count"], run["replicas_per_rank"], run["server_placement"]) == (0, 1, None)
    assert (run["training_pass"], run["accuracy"]) == ("forward_backward", None)
    assert run["world_size"] == 2


@pytest.mark.parametrize(
    ("column", "text", "message"),
    [
        ("world_size", "two", "x.csv line 2 world_size: expected a whole number, got 'two'"),
        ("world_size", "", "x.csv line 2 world_size: expected a whole number, got ''"),
        ("server_count", "", "x.csv line 2 server_count: expected a whole number, got ''"),
        (
            "one_way_delay_s",
            "",
            "x.csv line 2 one_way_delay_s: expected a number, 0 or more, got ''",
        ),
        ("epochs", "1.5", "x.csv line 2 epochs: expected a whole number or nothing, got '1.5'"),
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

    with pytest.raises(InvalidSpec, match=rf"x\.csv line 2: expected {len(COLUMNS)} cells"):
        read_runs(f"{head}\n{row}\n", name="x.csv")


def test_columns_of_another_kind_of_file_are_refused() -> None:
    with pytest.raises(InvalidSpec, match=r"x\.csv line 1: expected the columns job_id,"):
        read_runs("model,world_size\nmlp,1\n", name="x.csv")
