"""The medians that the tables, maps and charts of a sweep draw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from farm.cells.table import CellLine
from farm.configuration.spec import JobSpec
from tests.stored.sweep_cells import lines_of, measured_job

# Steal flags a measurement from 2 % on, and voids it from 10 % on.
Run = tuple[float, float | None]  # the step time, and the share of steal that was flagged


def flags(steal_ratio: float | None) -> list[dict[str, Any]]:
    if steal_ratio is None:
        return []
    return [{"kind": "steal", "message": "steal", "value": steal_ratio}]


def line_of(runs: Sequence[Run]) -> CellLine:
    spec = JobSpec(
        model="mlp",
        dataset="digits",
        strategy="single",
        world_size=1,
        global_batch_size=64,
        steps=1,
    )
    [line] = lines_of(
        [
            measured_job(
                spec,
                job_id=number,
                flags=flags(steal_ratio),
                step_time_s=time_s,
                throughput_examples_per_s=1 / time_s,
                time_per_epoch_s=10 * time_s,
            )
            for number, (time_s, steal_ratio) in enumerate(runs, start=1)
        ]
    )
    return line


@pytest.mark.parametrize(
    ("runs", "median_s"),
    [
        ([(1.0, None), (2.0, None), (4.0, None)], 2.0),
        # Weights 0.55, 0.05 and 0.05: the plain median would be 3.
        ([(1.0, 0.06), (3.0, 0.2), (3.0, 0.2)], 1.0),
        ([(1.0, 0.2), (3.0, 0.06), (4.0, 0.2)], 3.0),
        # Of an even number with equal weights, the middle between the two.
        ([(1.0, 0.06), (3.0, 0.06)], 2.0),
        # An undisturbed run stands alone, whatever the others weigh.
        ([(1.0, None), (3.0, 0.03), (3.0, 0.03)], 1.0),
        # Flagged under limits of another day, and so at full weight: disturbed all the same.
        ([(1.0, None), (3.0, 0.01), (3.0, 0.01)], 1.0),
    ],
)
def test_medians_weigh_disturbed_runs_as_the_other_answers_do(
    runs: list[Run], median_s: float
) -> None:
    line = line_of(runs)
    assert line.median_s == line.statistics.median_s == median_s
    assert line.median("throughput_examples_per_s") == pytest.approx(
        1 / median_s if len(runs) % 2 else (1 + 1 / 3) / 2
    )
    assert line.time_per_epoch_s == pytest.approx(10 * median_s)
    assert line.disturbed_count == sum(steal is not None for _, steal in runs)
