"""Frames of each library: the same values in all of them, from both databases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars
import pytest
import sqlalchemy as sa
from matplotlib.figure import Figure

from benchfarm.client import ClientError, Farm
from benchfarm.client.answers import FarmAdvice
from benchfarm.client.frames import Library, frame_of
from tests.fakes.server import wait_until
from tests.integration.benchfarm.client.conftest import Connect
from tests.web.web_client import Seeded, seed

ROWS: list[dict[str, Any]] = [
    {"mixed": 1, "text": "Größe \0 <b>", "wide": 2**70, "nested": {"a": [1]}, "list": [1, 2]},
    {
        "mixed": 2.5,
        "text": None,
        "wide": 1,
        "nested": {},
        "list": None,
        "late": True,
        "unknown_s": None,
    },
]
FRAMES: dict[str, Callable[[Farm, Seeded, Library], Any]] = {
    "measurements": lambda farm, _, library: farm.measurements(library=library),
    "of a sweep": lambda farm, its, library: farm.sweep(its.sweep_id).measurements(library=library),
    "cells": lambda farm, its, library: farm.sweep(its.sweep_id).cells(library=library),
    "agents": lambda farm, _, library: farm.agents(library=library),
    "origins": lambda farm, _, library: farm.origins(library=library),
    "series": lambda farm, its, library: farm.job(its.measured).series(library=library),
    "samples": lambda farm, its, library: farm.job(its.measured).series(full=True, library=library),
    "steps": lambda farm, its, library: farm.job(its.measured).steps(library=library),
    "options": lambda farm, _, library: settled(farm).options(library=library),
}


def settled(farm: Farm) -> FarmAdvice:
    """An answer for which no model is being fitted any more."""

    def answer() -> FarmAdvice | None:
        found = farm.recommend(model="mlp", dataset="digits", global_batch_size=64)
        return None if found["is_preliminary"] else found

    return wait_until(answer, "predictions are made")


@pytest.mark.parametrize("database_kind", ["sqlite", "postgresql"])
def test_a_frame_has_the_same_values_in_every_library(
    engine: sa.Engine, connected: Connect
) -> None:
    seeded, farm = seed(engine), connected()
    for name, read in FRAMES.items():
        arrow = read(farm, seeded, "pyarrow")
        of_polars = read(farm, seeded, "polars")
        of_pandas = read(farm, seeded, "pandas")
        assert arrow.num_rows > 0, name
        assert isinstance(of_polars, polars.DataFrame)
        assert without_age(of_polars.to_dict(as_series=False)) == without_age(arrow.to_pydict())
        assert list(of_pandas.columns) == arrow.column_names
        for column in ("step_time_s", "tick", "id"):
            if column in arrow.column_names:
                known = of_pandas[column].dropna().to_list()
                assert known == [v for v in arrow.column(column).to_pylist() if v is not None]


def without_age(columns: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Leave out what passes between two requests."""
    return {name: values for name, values in columns.items() if name != "heartbeat_age_s"}


@pytest.mark.parametrize("database_kind", ["sqlite", "postgresql"])
def test_a_sweep_is_waited_for_and_drawn_from_either_database(
    engine: sa.Engine, connected: Connect
) -> None:
    sweep = connected().sweep(seed(engine).sweep_id)
    sweep.cancel()
    for job in sweep.jobs:
        if job.state == "running":
            with pytest.raises(ClientError, match="still"):
                sweep.wait(timeout_s=0)
    axes = sweep.plot(Figure().subplots(), along="world_size")
    assert axes.get_ylabel() == "Step time"


def test_whatever_json_has_becomes_a_frame_of_polars() -> None:
    frame = frame_of(ROWS, "polars")
    assert frame.to_dict(as_series=False) == {
        "mixed": [1.0, 2.5],
        "text": ["Größe \0 <b>", None],
        "wide": [float(2**70), 1.0],
        "nested": ['{"a": [1]}', "{}"],
        "list": [[1, 2], None],
        "late": [None, True],
        "unknown_s": [None, None],
    }
    assert frame["unknown_s"].dtype == polars.Float64
    assert frame_of([], "polars").shape == (0, 0)
