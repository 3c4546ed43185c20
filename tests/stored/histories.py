"""Sweeps of several days that measured one cell, for tests of its history."""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import Any

from sqlalchemy.orm import Session

from farm.configuration.spec import JobSpec
from farm.gang.lifecycle import JobState
from farm.store.tables import JobRow
from tests.factories import NOW, add_measurement, add_sweep, job_spec

BEFORE, SLOWER = (0.100, 0.101, 0.099), (0.120, 0.121, 0.119)


def hardware(**changes: Any) -> dict[str, Any]:
    """Return the hardware of a rank as measurements keep it."""
    return {
        "cpu_model": "A CPU",
        "core_count": 4,
        "memory_bytes": 8 * 2**30,
        "accelerators": [],
        "accelerator_software": {},
        "kernel": "6.1.0",
        "tensorflow_version": None,
        "python_version": "3.11.7",
        "benchfarm_version": "0.1.0",
        **changes,
    }


def add_day(
    session: Session,
    day: int,
    *times_s: float,
    spec: JobSpec | None = None,
    framework: str | None = "torch 2.13.0",
    fingerprint: str | None = "a kind",
    ranks: list[dict[str, Any]] | None = None,
    sha256: str | None = None,
    flags: list[dict[str, Any]] | None = None,
    failed_count: int = 0,
) -> list[int]:
    """Add a sweep of one cell: a repetition for each step time, and others that failed.

    It is measured so many days after NOW. Returns the ids of its jobs.
    """
    base = spec or job_spec()
    count = len(times_s) + failed_count
    specs = [dataclasses.replace(base, repetition=n) for n in range(max(1, count))]
    job_ids = add_sweep(session, *specs, name=f"day {day}")
    at = NOW + dt.timedelta(days=day)
    for job_id, time_s in zip(job_ids, times_s, strict=False):
        session.get_one(JobRow, job_id).state = JobState.SUCCEEDED
        details: dict[str, Any] = {"hardware": [hardware()] if ranks is None else ranks}
        add_measurement(
            session,
            f"job {job_id}",
            job_id=job_id,
            created_at=at,
            step_time_s=time_s,
            model=base.model,
            strategy=base.strategy,
            framework=framework,
            fingerprint=fingerprint,
            flags=flags or [],
            details=details | ({} if sha256 is None else {"model_sha256": sha256}),
        )
    for job_id in job_ids[len(times_s) :] if count else ():
        job = session.get_one(JobRow, job_id)
        job.state, job.failure_kind, job.finished_at = JobState.FAILED, "out_of_memory", at
    return job_ids
