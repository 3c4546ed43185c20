"""Which trainings are one line of the figure of accuracies, and what it is called."""

from __future__ import annotations

from typing import Any

import pytest

from farm.measuring.learning_curves import LearningCurve
from farm.store.measurements.trained_cells import TrainedCell
from web.pages.accuracy import accuracy_figure


def _cell(accuracy_ratio: float, **changes: Any) -> TrainedCell:
    spec: dict[str, Any] = {
        "model": "small_cnn",
        "dataset": "digits",
        "strategy": "mwms_ring",
        "world_size": 2,
        "global_batch_size": 32,
        "epochs": 1,
    }
    curve = LearningCurve(train_s=(1.0,), accuracy_ratios=(accuracy_ratio,))
    return TrainedCell(spec={**spec, **changes}, instance_type=None, job_ids=(1,), curves=(curve,))


def _lines(*cells: TrainedCell) -> dict[str, float]:
    figure = accuracy_figure(cells)
    assert figure is not None
    return {one.name: one.marks[-1].y for one in figure.series}


@pytest.mark.parametrize(
    ("one", "other", "names"),
    [
        (
            {"strategy": "local_sgd", "steps_between_averages": 8},
            {"strategy": "local_sgd", "steps_between_averages": 64},
            ["batch 32, averaged every 8 steps", "batch 32, averaged every 64 steps"],
        ),
        (
            {"batch_split": "even"},
            {"batch_split": "by_speed"},
            ["batch 32", "batch 32, batch split by speed"],
        ),
        (
            {"strategy": "ps_sync", "server_count": 1, "server_placement": "collocated"},
            {"strategy": "ps_sync", "server_count": 1, "server_placement": "apart"},
            ["batch 32, 1 server collocated", "batch 32, 1 server apart"],
        ),
        (
            {"strategy": "ps_sync", "server_count": 1},
            {"strategy": "ps_sync", "server_count": 2},
            ["batch 32, 1 server collocated", "batch 32, 2 servers collocated"],
        ),
        (
            {"strategy": "gossip", "world_size": 2},
            {"strategy": "gossip", "world_size": 4},
            ["batch 32, 2 ranks", "batch 32, 4 ranks"],
        ),
    ],
)
def test_what_learns_in_another_way_is_a_line_of_its_own(
    one: dict[str, Any], other: dict[str, Any], names: list[str]
) -> None:
    found = _lines(_cell(0.9, **one), _cell(0.5, **other))
    assert found == dict(zip(names, (0.9, 0.5), strict=True))


def test_world_sizes_and_networks_of_replicas_in_step_are_one_line() -> None:
    wide = _cell(0.5, world_size=4, interface="fast", network={"one_way_delay_s": 0.1})
    assert _lines(_cell(0.75), wide, _cell(0.25, replicas_per_rank=2)) == {"batch 32": 0.5}


def test_nothing_trained_is_no_figure() -> None:
    assert accuracy_figure([]) is None
