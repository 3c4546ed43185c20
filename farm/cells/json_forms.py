"""The cells of a sweep with what is known of them, for people and programs to read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from farm.configuration.spec import spec_json
from farm.configuration.sweep import Precision
from farm.measuring.precision import CellStatistics, Outcome, Repetition, Timeline
from farm.measuring.saving import CellCost, Saving, saving

# What repetitions of one configuration differ in.
_OF_A_REPETITION = ("repetition", "seed")


@dataclass(frozen=True, slots=True, kw_only=True)
class CellSummary:
    """One configuration of a sweep. `spec` is its first job's, as stored.

    `quantities`: the medians of everything that is measured, by name. `machine_s`: how long its
    attempts, failed ones too, kept agents, times their number.
    """

    spec: Mapping[str, Any]
    repetitions: tuple[Repetition, ...]
    statistics: CellStatistics
    machine_s: float
    quantities: Mapping[str, float | None] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        """Return it with the names of the glossary, in base units."""
        known = self.statistics
        return {
            "configuration": {
                k: v for k, v in spec_json(self.spec).items() if k not in _OF_A_REPETITION
            },
            "job_ids": [r.job_id for r in self.repetitions],
            "repetition_count": known.count,
            "step_time_s": known.median_s,
            "step_time_low_s": known.low_s,
            "step_time_high_s": known.high_s,
            "half_width_ratio": known.half_width_ratio,
            "target": None if known.target is None else known.target.value,
            "outlier_job_ids": list(known.outlier_job_ids),
            "machine_s": self.machine_s,
            "quantities": dict(self.quantities),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepCells:
    """`precision` None: the number of repetitions is fixed. `is_complete`: no cell is left out."""

    precision: Precision | None
    cells: tuple[CellSummary, ...]
    is_complete: bool = True
    timeline: Timeline | None = field(default=None, compare=False, repr=False)

    @property
    def machine_s(self) -> float:
        return sum(cell.machine_s for cell in self.cells)

    @property
    def saving(self) -> Saving | None:
        """What repetitions until precision saved; None where it cannot be said (yet)."""
        if not self.is_complete:
            return None
        return saving(
            [
                CellCost(
                    target=cell.statistics.target,
                    repetition_count=sum(r.outcome is Outcome.MEASURED for r in cell.repetitions),
                    machine_s=cell.machine_s,
                )
                for cell in self.cells
                if cell.statistics.target is not None
            ]
        )

    def to_json(self) -> dict[str, object]:
        """Return cells, target and machine time; null is what is not known."""
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
