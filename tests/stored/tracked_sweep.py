"""A measured sweep in a store, with all that trackers get of it."""

from __future__ import annotations

import datetime as dt

import sqlalchemy as sa

from farm.configuration.spec import JobSpec, NetworkProfile
from farm.gang.lifecycle import AttemptState
from farm.messages.reports import Sample, StepTimes
from farm.messages.trainer_lines import Epoch, StepKind
from farm.store.engine import writing
from farm.store.identity import own_identity
from farm.store.tables import AttemptRow, JobEvent
from tests.factories import NOW, add_agent, add_attempt, add_measurement, add_sweep, job_spec
from tests.stored.stored_series import insert_epoch, insert_samples, insert_steps

NAME = "delays"
GO = NOW + dt.timedelta(seconds=5)
# What an agent may call a metric is up to it.
ODD_METRICS = {"../a//b\n": 1.0, ".._a__b_": 2.0, "gpu0_ratio": 0.5}


def specs() -> list[JobSpec]:
    network = NetworkProfile(one_way_delay_s=0.02)
    return [
        job_spec(world_size=2, global_batch_size=64, network=network),
        job_spec(global_batch_size=64),
    ]


def add_tracked_sweep(engine: sa.Engine) -> list[int]:
    """Add a sweep of two jobs that succeeded, one of them a gang of two; return their ids."""
    own_identity(engine)
    with writing(engine) as session:
        jobs = add_sweep(session, *specs(), name=NAME)
        for agent_id in ("a1", "a2"):
            add_agent(session, agent_id)
        for job_id, spec in zip(jobs, specs(), strict=True):
            agents = ["a1", "a2"][: spec.world_size]
            token = add_attempt(session, job_id, agents, state=AttemptState.SUCCEEDED)
            attempt = session.get_one(AttemptRow, token)
            attempt.ended_at = GO + dt.timedelta(seconds=60)
            session.add(JobEvent(job_id=job_id, attempt_id=token, at=GO, event="attempt: starting"))
            for rank in range(spec.world_size):
                samples = [
                    Sample(
                        tick=tick,
                        machine_cpu_ratio=0.25 * (rank + 1),
                        memory_used_bytes=3_000_000,
                        net_rx_bytes_per_s=2e6,
                        net_tx_bytes_per_s=1e6,
                        extra=ODD_METRICS,
                    )
                    for tick in (1, 2, 4)
                ]
                insert_samples(
                    session, day=attempt.leased_at.date(), token=token, rank=rank, samples=samples
                )
            warm = StepTimes(kind=StepKind.WARMUP, first_step=0, begun_s=1.0, times_s=(0.5,))
            timed = StepTimes(
                kind=StepKind.TIMED, first_step=1, begun_s=1.5, times_s=(0.125, 0.25, 0.5)
            )
            for steps in (warm, timed):
                insert_steps(session, token=token, rank=0, steps=steps)
            epoch = Epoch(
                epoch=0,
                train_s=2.0,
                step_count=3,
                train_loss=0.5,
                val_loss=None,
                val_accuracy_ratio=0.875,
            )
            insert_epoch(session, token=token, rank=0, epoch=epoch)
            add_measurement(
                session,
                f"job {job_id}",
                job_id=job_id,
                attempt_id=token,
                strategy=spec.strategy,
                world_size=spec.world_size,
                global_batch_size=spec.global_batch_size,
                one_way_delay_s=0.02 if spec.network else 0.0,
                step_time_s=0.25,
                flags=[{"kind": "steal", "message": "m", "value": 0.5}],
                fingerprint="x",
            )
    return jobs
