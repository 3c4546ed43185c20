"""Tables of cells for tests, as if they had been summed up from a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from sqlalchemy.orm import Session

from farm.cells.configuration import CellConfiguration, configuration_of
from farm.cells.json_forms import SweepCells
from farm.cells.reading import first_cells, read_sweep
from farm.cells.table import CellLine, CellState, SweepTable, make_line, make_table
from farm.configuration.axes import AXES, spec_values
from farm.configuration.spec import JobSpec
from farm.configuration.sweep import Precision
from farm.gang.lifecycle import JobState
from farm.measuring.measurement import OK
from farm.measuring.precision import Repetition, RepetitionState
from farm.measuring.quantities import QUANTITIES, QUANTITIES_BY_NAME
from farm.measuring.scaling import baselines
from farm.recommend.prices import Prices
from farm.store.measurements.repetitions import timeline_of_rows
from farm.values.codec import to_json


def configuration(**changes: Any) -> CellConfiguration:
    """One machine with batch 64, unless told otherwise; more than one are a ring."""
    fields: dict[str, Any] = {
        "model": "mlp",
        "dataset": "digits",
        "strategy": "mwms_ring" if changes.get("world_size", 1) > 1 else "single",
        "world_size": 1,
        "global_batch_size": 64,
        "steps": 10,
        **changes,
    }
    place = tuple(fields.pop(axis.field, axis.value_in({})) for axis in AXES)
    return CellConfiguration(place=place, **fields)


def cell(*times_s: float, first_job_id: int = 1, **changes: Any) -> CellLine:
    """A cell with these step times; without any it waits, unless `state` says otherwise."""
    measured = QUANTITIES_BY_NAME.keys() - {"epochs"}  # what was trained, which was asked for, too
    medians = {name: changes.pop(name) for name in list(changes) if name in measured}
    columns = {name: changes.pop(name) for name in list(changes) if name in _OF_LINE}
    what = configuration(**changes)
    middle = sorted(times_s)[len(times_s) // 2] if times_s else None
    state = RepetitionState.MEASURED if times_s else RepetitionState.PENDING
    fields: dict[str, Any] = {
        "cell_hash": repr(what),
        "configuration": what,
        "state": CellState.MEASURED if times_s else CellState.WAITING,
        "repetitions": tuple(
            Repetition(job_id=first_job_id + i, state=state, step_time_s=time_s, fingerprint="x")
            for i, time_s in enumerate(times_s or (None,))
        ),
        "precision": None,
        "repetition_count": len(times_s),
        "medians": tuple(
            {"step_time_s": middle, **medians}.get(quantity.name) for quantity in QUANTITIES
        ),
        "fingerprint": "x" if times_s else None,
    }
    return CellLine(**{**fields, **columns})


def measured_job(spec: JobSpec, *, job_id: int, **columns: Any) -> SimpleNamespace:
    """A job that has succeeded with its measurement, as `measurements.cell_rows` reads it."""
    known: dict[str, Any] = {
        "id": job_id,
        "measurement_id": job_id,
        "cell_hash": spec.cell_hash,
        "spec": to_json(spec),
        "state": JobState.SUCCEEDED,
        "status": OK,
        "failure_kind": None,
        "cancel_requested": False,
        "fingerprint": "x",
        "framework": "f",
        "flags": [],
        "instance_type": None,
        "gradient_bytes": None,
        **{axis.stored: spec_values(spec)[axis.field] for axis in AXES},
        **{quantity.name: None for quantity in QUANTITIES},
    }
    return SimpleNamespace(**{**known, **columns})


def lines_of(
    jobs: Sequence[Any], *, prices: Prices | None = None, precision: Precision | None = None
) -> list[CellLine]:
    """Sum up the jobs of a sweep, a line for each cell."""
    by_cell: dict[str, list[Any]] = {}
    for job in jobs:
        by_cell.setdefault(job.cell_hash, []).append(job)
    return [
        make_line(
            configuration_of(of_cell[0].spec),
            of_cell,
            precision=precision,
            single=baselines(jobs),
            prices=prices or Prices(),
            timeline=timeline_of_rows(jobs),
        )
        for of_cell in by_cell.values()
    ]


def cells_in(session: Session, sweep_id: int, *, max_jobs: int | None = None) -> SweepCells:
    """Return the cells of a stored sweep."""
    return first_cells(session, read_sweep(session, sweep_id, prices=Prices()), max_jobs=max_jobs)


def table(*lines: CellLine, skipped: Sequence[str] = ()) -> SweepTable:
    """A complete table of them."""
    return make_table(lines, single={}, precision=None, spent_s={}, skipped=skipped)


_OF_LINE: Sequence[str] = (
    *("cell_hash", "state", "repetitions", "precision", "efficiency_ratio", "cost_usd"),
    *("fingerprint", "failure_kind", "failed_job_ids", "disturbed"),
)
