"""The cells of a sweep as JSON: one form, for the API and for `farm status`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from farm.cells.table import CellLine, saving_of
from farm.configuration.spec import spec_json
from farm.configuration.sweep import Precision
from farm.gang.lifecycle import JobState
from farm.measuring.machine_time import Saving
from farm.measuring.precision import TimeRatio
from farm.values.codec import to_json

# What repetitions of one configuration differ in.
_OF_A_REPETITION = ("repetition", "seed")


def results_json(line: CellLine) -> dict[str, object]:
    """Return a cell's results on one kind of hardware, with the glossary's names."""
    statistics = line.statistics
    return {
        "fingerprint": line.fingerprint,
        "framework": line.framework,
        "repetition_count": line.repetition_count,
        "step_time_s": statistics.median_s,
        "step_time_low_s": statistics.low_s,
        "step_time_high_s": statistics.high_s,
        "half_width_ratio": statistics.half_width_ratio,
        "scaling_efficiency_ratio": line.efficiency_ratio,
        "expected_bytes_per_step": line.expected_bytes_per_step,
        "outlier_job_ids": list(statistics.outlier_job_ids),
        "disturbed": to_json(line.disturbed),
        "set_aside_count": line.set_aside_count,
        "quantities": line.medians_by_name,
    }


def ratio_json(ratio: TimeRatio | None) -> dict[str, object]:
    """Return a ratio of step times with its 95 % interval."""
    return {
        "ratio": ratio and ratio.ratio,
        "ratio_low": ratio and ratio.low,
        "ratio_high": ratio and ratio.high,
    }


def compared_json(
    baseline: CellLine, line: CellLine | None, ratio: TimeRatio | None
) -> dict[str, object]:
    """Return a cell as it was in a baseline and as it is now; `line` None: it was not measured."""
    return {
        "values": (line or baseline).configuration.values,
        **ratio_json(ratio),
        # The former names, until 0.2.0.
        "low": ratio and ratio.low,
        "high": ratio and ratio.high,
        "baseline_step_time_s": baseline.median_s,
        "step_time_s": line and line.median_s,
    }


def states_json(states: Sequence[JobState]) -> dict[str, int]:
    """Count jobs by their states."""
    return {state.value: states.count(state) for state in JobState}


@dataclass(frozen=True, slots=True, kw_only=True)
class CellSummary:
    """One configuration of a sweep. `spec` is its first job's, as stored.

    `machine_s`: how long its attempts, failed ones too, kept agents, times their number.
    """

    line: CellLine
    spec: Mapping[str, Any]
    machine_s: float

    def to_json(self) -> dict[str, object]:
        """Return it in base units, first on the kind of hardware with most repetitions."""
        line, spec = self.line, spec_json(self.spec)
        target = line.statistics.target
        return {
            "configuration": {k: v for k, v in spec.items() if k not in _OF_A_REPETITION},
            "values": line.configuration.values,
            "state": line.state.value,
            "job_ids": [r.job_id for r in line.repetitions],
            "jobs_by_state": states_json(line.job_states),
            "target": None if target is None else target.value,
            "machine_s": self.machine_s,
            **results_json(line),
            "other_hardware": [results_json(kind) for kind in line.other_kinds],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepCells:
    """`precision` None: the number of repetitions is fixed. `is_complete`: no cell is left out."""

    precision: Precision | None
    cells: tuple[CellSummary, ...]
    is_complete: bool = True

    @property
    def machine_s(self) -> float:
        return sum(cell.machine_s for cell in self.cells)

    @property
    def saving(self) -> Saving | None:
        """The machine time saved by adaptive repetitions; None if not known (yet)."""
        if not self.is_complete:
            return None
        spent_s = {cell.line.cell_hash: cell.machine_s for cell in self.cells}
        return saving_of([cell.line for cell in self.cells], spent_s)

    def to_json(self) -> dict[str, object]:
        """Return cells, target and machine time; null means not known."""
        target, saved = self.precision, self.saving
        return {
            "cells": [cell.to_json() for cell in self.cells],
            "has_more_cells": not self.is_complete,
            "target_ratio": target.target_ratio if target else None,
            "min_repetitions": target.min_repetitions if target else None,
            "max_repetitions": target.max_repetitions if target else None,
            "machine_s": self.machine_s if self.is_complete else None,
            "fixed_repetitions": saved.fixed_repetitions if saved else None,
            "fixed_machine_s": saved.fixed_machine_s if saved else None,
            "machine_hours_saved": saved.machine_hours_saved if saved else None,
        }
