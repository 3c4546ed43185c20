"""JSON forms of what the store returns; their keys are what scripts rely on."""

from __future__ import annotations

from farm.configuration.spec import spec_json
from farm.store.base import Table
from farm.store.sweeps.sweeps import SweepSummary
from farm.store.tables import JobRow


def row_json(row: Table, *, without: tuple[str, ...] = ()) -> dict[str, object]:
    """Return a stored row by its columns."""
    names = (column.key for column in type(row).__table__.columns)
    return {name: getattr(row, name) for name in names if name not in without}


def job_json(row: JobRow) -> dict[str, object]:
    """Return a stored job by its columns."""
    return {**row_json(row), "spec": spec_json(row.spec)}


def sweep_json(summary: SweepSummary) -> dict[str, object]:
    """Return a sweep as the API does, and two of its keys under their former names until 0.2.0."""
    written = summary.to_json()
    return {**written, "sweep_id": written["id"], "counts": written["jobs_by_state"]}
