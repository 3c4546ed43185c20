"""A run of a study, by its columns."""

from __future__ import annotations

import dataclasses

import pytest

from farm.measuring.study_run import COLUMNS, RUN_AXES, RUN_QUANTITIES, StudyRun
from tests.stored.study_runs import study_run


def test_every_column_is_an_axis_a_quantity_or_a_field() -> None:
    fields = {field.name for field in dataclasses.fields(StudyRun)} - {"values"}
    declared = [axis.field for axis in RUN_AXES] + [one.name for one in RUN_QUANTITIES]

    assert sorted([*fields, *declared]) == sorted(COLUMNS)


def test_a_run_has_the_values_of_axes_and_quantities_and_its_fields() -> None:
    run = study_run(world_size=3, step_time_s=0.5, status="out_of_memory")

    assert (run["world_size"], run["step_time_s"], run["status"]) == (3, 0.5, "out_of_memory")


@pytest.mark.parametrize("column", ["step_time", "values", "interface"])
def test_an_unknown_column_is_named(column: str) -> None:
    with pytest.raises(KeyError, match=f"a run of a study has no column '{column}'"):
        study_run()[column]


def test_a_misspelt_column_is_guessed() -> None:
    with pytest.raises(KeyError, match="did you mean 'step_time_s'"):
        study_run()["step_time"]
