"""Runs of a latency study with a known truth."""

from __future__ import annotations

from typing import Any

from farm.measuring.study_run import COLUMNS, StudyRun
from tests.factories import NOW

ALONE_S = 0.030
BASE_S = {2: 0.020, 3: 0.025}
TRIPS = {2: 2.0, 3: 4.0}
GRADIENT_BYTES = 300_000


def study_run(**changes: Any) -> StudyRun:
    """A run of one host alone, unless told otherwise."""
    fields: dict[str, Any] = {
        "job_id": 1,
        "measured_at": NOW,
        "status": "ok",
        "model": "small_cnn",
        "dataset": "digits",
        "strategy": "mwms_ring" if changes.get("world_size", 1) > 1 else "single",
        "world_size": 1,
        "global_batch_size": 192,
        "one_way_delay_s": 0.0,
        "repetition": 0,
        "attempt_count": 1,
        "step_time_s": ALONE_S,
        "timed_step_count": 20,
        "steps_per_epoch": 8,
        "time_per_epoch_s": 8 * ALONE_S,
        "rtt_s": None,
        "gradient_bytes": GRADIENT_BYTES,
        "parameter_count": GRADIENT_BYTES // 4,
        "sent_bytes_per_step": 0.0,
        "wire_bytes_per_step": 0.0,
        "rank_0_compute_s": 0.010,
        "other_ranks_compute_s": None,
        "cpu_ratio": 0.9,
        "control_ratio": 1.0,
        "flags": (),
        "network": None,
        "core_count": min(2, changes.get("world_size", 1)),
        "fingerprint": "one kind",
        "cpu_model": "A CPU",
        "memory_bytes": 8 * 2**30,
        "kernel": "6.1.0",
        "tensorflow_version": "2.21.0",
        "python_version": "3.11.7",
        "benchfarm_version": "0.1.0",
    }
    return StudyRun.of({**fields, **changes})


def changed(run: StudyRun, **changes: Any) -> StudyRun:
    """The same run with other values of these columns."""
    return StudyRun.of({column: run[column] for column in COLUMNS} | changes)


def gang_run(world_size: int, delay_s: float, **changes: Any) -> StudyRun:
    """A run of a gang whose step takes BASE_S and TRIPS round trips, exactly."""
    rtt_s = 0.0002 + 2 * delay_s
    sent = 2 * (world_size - 1) / world_size * GRADIENT_BYTES
    fields: dict[str, Any] = {
        "world_size": world_size,
        "one_way_delay_s": delay_s,
        "rtt_s": rtt_s,
        "step_time_s": BASE_S[world_size] + TRIPS[world_size] * rtt_s,
        "sent_bytes_per_step": 1.01 * sent,
        "wire_bytes_per_step": 1.06 * sent,
        "other_ranks_compute_s": 0.010 + rtt_s,
        "network": "vde_link",
    }
    return study_run(**{**fields, **changes})


def whole_study() -> list[StudyRun]:
    """Three runs of each configuration, which differ by a thousandth."""
    runs: list[StudyRun] = []
    for repetition in range(3):
        one = [study_run(), *(gang_run(n, d) for n in (2, 3) for d in (0.0, 0.02, 0.04))]
        for run in one:
            runs.append(_repeated(run, repetition=repetition, job_id=len(runs) + 1))
    return runs


def _repeated(run: StudyRun, *, repetition: int, job_id: int) -> StudyRun:
    return changed(
        run,
        repetition=repetition,
        job_id=job_id,
        step_time_s=run["step_time_s"] * (1 + 0.001 * (repetition - 1)),
    )
