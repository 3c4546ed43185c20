"""JSON forms of what the store returns; their keys are what scripts rely on."""

from __future__ import annotations

from farm.core.lifecycle import JobState
from farm.store.base import Table
from farm.store.sweeps import SweepSummary


def row_json(row: Table, *, without: tuple[str, ...] = ()) -> dict[str, object]:
    """Return a stored row by its columns."""
    names = (column.key for column in type(row).__table__.columns)
    return {name: getattr(row, name) for name in names if name not in without}


def sweep_json(summary: SweepSummary) -> dict[str, object]:
    """Return a sweep with its number of jobs in each state."""
    return {
        "sweep_id": summary.sweep_id,
        "name": summary.name,
        "created_at": summary.created_at,
        "state": summary.state.value,
        "is_paused": summary.is_paused,
        "job_count": summary.job_count,
        "max_job_count": summary.max_job_count,
        "skipped_count": summary.skipped_count,
        "counts": {state.value: summary.counts[state] for state in JobState},
    }
