"""Expected run times of jobs. Pure.

The scheduler orders and packs by these lengths and relies on none of them, so a rough one is worth
more than none: what the same cell took, else what was predicted of it, else what the model's other
cells took a step, else the same of any model, else a guess.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from farm.configuration.spec import JobSpec

# Where nothing was ever measured: a small model on a CPU, started warm.
_STEP_S = 0.05
_START_S = 5.0
_STEPS_AN_EPOCH = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLength:
    """For how long a gang that succeeded was leased."""

    cell_hash: str
    spec: JobSpec
    length_s: float


def expected_lengths_s(
    cells: Mapping[str, JobSpec],
    *,
    measured: Collection[MeasuredLength],
    predicted_s: Mapping[str, float],
) -> dict[str, float]:
    """Return by cell hash how long a job of each cell is expected to take."""
    by_cell: dict[str, list[float]] = {}
    by_model: dict[str, list[float]] = {}
    for one in measured:
        by_cell.setdefault(one.cell_hash, []).append(one.length_s)
        step_s = max(0.0, one.length_s - _START_S) / _steps(one.spec)
        by_model.setdefault(one.spec.model, []).append(step_s)
    model_step_s = {model: statistics.median(steps_s) for model, steps_s in by_model.items()}
    any_step_s = statistics.median(model_step_s.values()) if model_step_s else _STEP_S
    found = {}
    for cell_hash, spec in cells.items():
        if cell_hash in by_cell:
            found[cell_hash] = statistics.fmean(by_cell[cell_hash])
        elif cell_hash in predicted_s:
            found[cell_hash] = predicted_s[cell_hash]
        else:
            step_s = model_step_s.get(spec.model, any_step_s)
            found[cell_hash] = _START_S + _steps(spec) * step_s
    return found


def _steps(spec: JobSpec) -> int:
    timed = spec.steps if spec.steps is not None else (spec.epochs or 1) * _STEPS_AN_EPOCH
    return max(1, spec.warmup_step_count + timed)
