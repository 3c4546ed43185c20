"""Finds or resumes the sweep of a study, and reads its runs."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Row, Select, select
from sqlalchemy.orm import Session

from farm.configuration.spec import ServerPlacement
from farm.gang.lifecycle import UNSUCCESSFUL_JOB_STATES
from farm.measuring.measurement import OK, RankOutcome, window_samples
from farm.measuring.study_run import RUN_AXES, RUN_QUANTITIES, StudyRun
from farm.messages.reports import RankEnded, Sample
from farm.sampling.names import resident_extra
from farm.statistics import mean
from farm.store.result_tables import EpochRow, MeasurementRow
from farm.store.series.sample_ranges import SERVING, TRAINING
from farm.store.series.series import samples_by_rank
from farm.store.sweeps.jobs import retry_job
from farm.store.tables import AgentRow, JobRow, RankRow, SweepRow
from farm.values.codec import from_stored

_OF_HARDWARE = (
    *("cpu_model", "memory_bytes", "kernel"),
    *("tensorflow_version", "python_version", "benchfarm_version"),
)
_TRAINS, _SERVES = resident_extra(TRAINING), resident_extra(SERVING)


def find_same_sweep(session: Session, spec: Mapping[str, object]) -> int | None:
    """Return the newest sweep that was submitted with exactly this content, or None."""
    named = select(SweepRow).where(SweepRow.name == spec.get("name")).order_by(SweepRow.id.desc())
    return next((sweep.id for sweep in session.scalars(named) if sweep.spec == dict(spec)), None)


def requeue_unfinished(session: Session, sweep_id: int, *, now: dt.datetime) -> int:
    """Let jobs wait again that ended without a result, and return how many.

    A configuration that failed *is* a result, and stays. The caller owns the transaction.
    """
    job_ids = [
        job.id for job in unmeasured_jobs(session, sweep_id) if job.state in UNSUCCESSFUL_JOB_STATES
    ]
    for job_id in job_ids:
        retry_job(session, job_id, now=now)
    return len(job_ids)


def unmeasured_jobs(session: Session, sweep_id: int) -> Sequence[JobRow]:
    """Return the jobs of a sweep that have no measurement (yet), by id."""
    return session.scalars(
        select(JobRow)
        .outerjoin(MeasurementRow, MeasurementRow.job_id == JobRow.id)
        .where(JobRow.sweep_id == sweep_id, MeasurementRow.id.is_(None))
        .order_by(JobRow.id)
    ).all()


def study_runs(session: Session, sweep_id: int) -> list[StudyRun]:
    """Return the measured jobs of a sweep by job."""
    rows = session.execute(
        select(MeasurementRow, JobRow)
        .join(JobRow, JobRow.id == MeasurementRow.job_id)
        .where(JobRow.sweep_id == sweep_id)
        .order_by(JobRow.id)
    ).all()
    gangs, last_epochs = _gangs(session, sweep_id), _last_epochs(session, sweep_id)
    runs = []
    for row, job in rows:
        gang = gangs.get(row.attempt_id or 0, [])
        run = _run(row, job, gang, last_epochs.get(row.attempt_id or 0))
        training, serving = memory_by_role(session, row, [rank for rank, _ in gang])
        serving = run.server_resident_bytes if serving is None else serving
        runs.append(
            dataclasses.replace(run, worker_resident_bytes=training, server_resident_bytes=serving)
        )
    return runs


def _gangs(session: Session, sweep_id: int) -> dict[int, list[Row[RankRow, AgentRow]]]:
    """Return by attempt the ranks behind the measurements of a sweep."""
    gangs: dict[int, list[Row[RankRow, AgentRow]]] = {}
    for member in session.execute(
        select(RankRow, AgentRow)
        .join(AgentRow, AgentRow.id == RankRow.agent_id)
        .where(RankRow.attempt_id.in_(_attempts(sweep_id)))
        .order_by(RankRow.attempt_id, RankRow.rank)
    ):
        gangs.setdefault(member[0].attempt_id, []).append(member)
    return gangs


def _last_epochs(session: Session, sweep_id: int) -> dict[int, EpochRow]:
    """Return by attempt the last epoch of rank 0, which alone looks at the test split."""
    epochs = session.scalars(
        select(EpochRow)
        .where(EpochRow.attempt_id.in_(_attempts(sweep_id)), EpochRow.rank == 0)
        .order_by(EpochRow.epoch)
    )
    return {epoch.attempt_id: epoch for epoch in epochs}


def _attempts(sweep_id: int) -> Select[int | None]:
    """Return the attempts behind the measurements of a sweep."""
    return (
        select(MeasurementRow.attempt_id)
        .join(JobRow, JobRow.id == MeasurementRow.job_id)
        .where(JobRow.sweep_id == sweep_id)
    )


def _run(
    row: MeasurementRow,
    job: JobRow,
    gang: Sequence[Row[RankRow, AgentRow]],
    last_epoch: EpochRow | None,
) -> StudyRun:
    hardware: dict[str, Any] = gang[0][0].hardware if gang else {}
    of_hardware: dict[str, Any] = {name: hardware.get(name) for name in _OF_HARDWARE}
    axes = {axis.field: axis.value_measured(row) for axis in RUN_AXES}
    quantities = {one.name: one.value_measured(row) for one in RUN_QUANTITIES}
    return StudyRun(
        values=axes | quantities,
        job_id=job.id,
        measured_at=row.created_at,
        status=row.status,
        repetition=row.repetition,
        attempt_count=job.attempt_count,
        flags=tuple(sorted({flag["kind"] for flag in row.flags})),
        network=row.network,
        framework=row.framework,
        fingerprint=row.fingerprint,
        gradient_bytes=row.gradient_bytes,
        parameter_count=row.parameter_count,
        rtt_s=row.rtt_s,
        control_ratio=row.control_ratio,
        wire_bytes_per_step=mean(_wire_bytes_per_step(rank.ended) for rank, _ in gang),
        largest_wire_bytes_per_step=max(
            (sent for rank, _ in gang if (sent := _wire_bytes_per_step(rank.ended)) is not None),
            default=None,
        ),
        rank_0_compute_s=mean(_compute_s(rank.ended) for rank, _ in gang[:1]),
        other_ranks_compute_s=mean(_compute_s(rank.ended) for rank, _ in gang[1:]),
        training_loss=last_epoch.train_loss if last_epoch else None,
        test_loss=last_epoch.val_loss if last_epoch else None,
        **_of_servers(row.details.get("servers", ())),
        core_count=len(
            {(agent.machine_id, cpu) for _, agent in gang for cpu in agent.facts.get("cpus", ())}
        ),
        **of_hardware,
    )


def _of_servers(servers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what the ranks that only serve used, on average over them."""
    memory = mean(server["resident_bytes"] for server in servers)
    return {
        "server_cpu_ratio": mean(server["cpu_ratio"] for server in servers),
        "server_resident_bytes": None if memory is None else round(memory),
        "server_rx_bytes_per_s": mean(server["net_rx_bytes_per_s"] for server in servers),
        "server_tx_bytes_per_s": mean(server["net_tx_bytes_per_s"] for server in servers),
    }


def _compute_s(ended: Mapping[str, Any] | None) -> float | None:
    """Return what of a profiled step a rank spent outside of collectives; as it came."""
    profile = ((ended or {}).get("result") or {}).get("profile") or {}
    compute_s: float | None = profile.get("compute_s")
    return compute_s


def _wire_bytes_per_step(ended: Mapping[str, Any] | None) -> float | None:
    """Return what left a rank's interface for one step; as it came."""
    result = (ended or {}).get("result") or {}
    sent, steps = result.get("interface_tx_bytes"), result.get("window_step_count")
    return sent / steps if sent is not None and steps else None


def memory_by_role(
    session: Session, row: MeasurementRow, ranks: Sequence[RankRow]
) -> tuple[int | None, int | None]:
    """Return the memory in bytes of a process that trains, and of one that only serves.

    Of the timed seconds each process's largest; of those the largest that trains, as a measurement
    has it for whole ranks, and the mean over the servers. The second is None where nothing serves
    beside a rank that trains.
    """
    is_collocated = row.server_placement == ServerPlacement.COLLOCATED.value
    if row.status != OK or not row.server_count or not is_collocated or row.attempt_id is None:
        return row.resident_bytes, None
    samples = samples_by_rank(session, row.attempt_id, max_points=None)
    training: list[float] = []
    serving: list[float] = []
    for rank in ranks:
        timed = _timed(rank, samples.get(rank.rank, ()))
        # A rank without a server is one process, which is not told apart.
        training += _largest(s.extra.get(_TRAINS, s.resident_bytes) for s in timed)
        serving += _largest(s.extra.get(_SERVES) for s in timed)
    served = mean(serving)
    return (
        round(max(training)) if training else None,
        None if served is None else round(served),
    )


def _timed(rank: RankRow, samples: Sequence[Sample]) -> Sequence[Sample]:
    ended = from_stored(RankEnded, rank.ended) if rank.ended else None
    if ended is None or ended.result is None:
        return samples
    return window_samples(
        RankOutcome(
            rank=rank.rank,
            result=ended.result,
            timed_begun_s=ended.timed_begun_s,
            samples=tuple(samples),
        )
    )


def _largest(values: Iterable[float | None]) -> list[float]:
    known = [value for value in values if value is not None]
    return [max(known)] if known else []
