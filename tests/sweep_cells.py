"""Tables of cells for tests, as if they had been summed up from a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from farm.core.axes import AXES
from farm.core.precision import Outcome, Repetition
from farm.figures.cell_configuration import CellConfiguration
from farm.figures.sweep_table import CellLine, CellState, SweepTable, make_table


def configuration(**changes: Any) -> CellConfiguration:
    """One machine with batch 64, unless told otherwise; more than one are a ring."""
    fields: dict[str, Any] = {
        "model": "mlp",
        "dataset": "digits",
        "strategy": "mwms_ring" if changes.get("world_size", 1) > 1 else "single",
        "world_size": 1,
        "global_batch_size": 64,
        "emulator": None,
        "length": "10 steps",
        "labels": "",
        **changes,
    }
    place = tuple(fields.pop(axis.field, axis.value_in({})) for axis in AXES)
    return CellConfiguration(place=place, **fields)


def cell(*times_s: float, first_job_id: int = 1, **changes: Any) -> CellLine:
    """A cell with these step times; without any it waits, unless `state` says otherwise."""
    columns = {name: changes.pop(name) for name in list(changes) if name in _OF_LINE}
    what = configuration(**changes)
    middle = sorted(times_s)[len(times_s) // 2] if times_s else None
    outcome = Outcome.MEASURED if times_s else Outcome.PENDING
    fields: dict[str, Any] = {
        "cell_hash": repr(what),
        "configuration": what,
        "state": CellState.MEASURED if times_s else CellState.WAITING,
        "repetitions": tuple(
            Repetition(
                job_id=first_job_id + i, outcome=outcome, step_time_s=time_s, fingerprint="x"
            )
            for i, time_s in enumerate(times_s or (None,))
        ),
        "precision": None,
        "median_s": middle,
        "fingerprint": "x" if times_s else None,
    }
    return CellLine(**{**fields, **columns})


def table(*lines: CellLine, skipped: Sequence[str] = ()) -> SweepTable:
    """A complete table of them."""
    return make_table(lines, single={}, precision=None, spent_s={}, skipped=skipped)


_OF_LINE: Sequence[str] = (
    *("cell_hash", "state", "repetitions", "precision", "throughput_examples_per_s"),
    *("time_per_epoch_s", "efficiency_ratio", "cost_usd", "fingerprint", "failure_kind"),
    *("failed_job_ids", "disturbed_count"),
)
