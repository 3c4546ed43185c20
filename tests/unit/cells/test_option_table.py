"""Options are named as the cells are that they are measured in."""

from __future__ import annotations

from typing import Any

import pytest

from farm.cells.configuration import configuration_of as configuration_of_job
from farm.cells.option_table import configuration_of, option_columns, option_lines
from farm.configuration.axes import SETUP_AXES
from farm.configuration.spec import (
    TCP_PROXY,
    JobSpec,
    NetworkProfile,
    OperatorPlacement,
    ServerPlacement,
)
from farm.recommend.configuration import network_of
from farm.recommend.contracts import Option, Question
from farm.recommend.setup import Setup
from farm.values.codec import to_json
from tests.factories import job_spec
from tests.unit.recommend.test_recommend_objective import option

QUESTION = Question(model="mlp", dataset="digits", global_batch_size=32, one_way_delay_s=0.02)
DELAYED = NetworkProfile(one_way_delay_s=0.02)


def option_of(spec: JobSpec) -> Option:
    return option(
        spec.strategy,
        1.0,
        world_size=spec.world_size,
        server_count=spec.server_count,
        setup=Setup.of_job(spec),
        network=network_of(spec.interface or spec.emulator),
    )


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"placement": OperatorPlacement.HARD},
        {"world_size": 2, "network": DELAYED},
        {"world_size": 2, "network": DELAYED, "emulator": "tc_netem"},
        {"world_size": 2, "network": DELAYED, "emulator": TCP_PROXY},
        {"world_size": 2, "network": DELAYED, "interface": "ib0"},
        {
            "strategy": "ps_sync",
            "world_size": 2,
            "server_count": 2,
            "server_placement": ServerPlacement.APART,
            "network": DELAYED,
        },
        {
            "strategy": "torch_ddp",
            "world_size": 2,
            "network": DELAYED,
            "axes": {"optimizer": "adamw", "gradient_bucket_bytes": 2.0**20},
        },
    ],
)
def test_an_option_has_the_configuration_of_its_cell(changes: dict[str, Any]) -> None:
    spec = job_spec(**changes)
    written = to_json(spec)
    assert isinstance(written, dict)
    cell = configuration_of_job(written)
    found = configuration_of(option_of(spec), QUESTION)
    assert found.values == cell.values
    assert found.emulator == (TCP_PROXY if spec.emulator == TCP_PROXY else None)


def test_an_import_whose_set_up_no_axis_takes_is_in_the_table() -> None:
    imported = option("ddp", 1.0, world_size=2, setup=Setup.of("optimizer=lamb", {}))
    assert configuration_of(imported, QUESTION)["placement"] == "optimizer=lamb"


def test_what_nobody_said_of_a_set_up_is_as_usual() -> None:
    usual = configuration_of(option("ring", 1.0, world_size=2), QUESTION)
    assert all(axis.is_usual(usual[axis.field]) for axis in SETUP_AXES)


def test_a_column_that_no_option_has_anything_in_is_left_out() -> None:
    lines = option_lines([option("ring", 1.0), option("ring", 2.0, world_size=2)], QUESTION)
    titles = [column.title for column, _ in option_columns(lines)]
    assert titles[:4] == ["delay", "batch", "strategy", "world size"]
    assert "time per epoch" in titles
    assert {"instance type", "cost", "accuracy", "step time"}.isdisjoint(titles)
