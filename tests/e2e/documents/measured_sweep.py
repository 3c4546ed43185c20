"""A sweep that is in a store as if it had been measured: for commands that read results."""

from __future__ import annotations

from sqlalchemy.orm import Session

from farm.configuration.spec import JobSpec, NetworkProfile
from farm.gang.lifecycle import AttemptState, JobState
from farm.messages.reports import Sample
from farm.messages.trainer_lines import Epoch
from farm.store.tables import AttemptRow, JobRow
from tests.factories import add_agent, add_attempt, add_measurement, add_sweep, job_spec
from tests.stored.stored_series import insert_epoch, insert_samples

_STEPS_OF_AN_EPOCH = 10
_ACCURACIES = (0.9, 0.96, 0.97)


def _specs() -> list[JobSpec]:
    """One machine and two, with and without a delay; some cells are left to be planned."""
    measured = [
        *((1, batch, 0.0) for batch in (64, 128, 256)),
        *((2, batch, 0.0) for batch in (64, 128, 256)),
        (2, 64, 0.02),
    ]
    return [
        job_spec(
            model="small_cnn",
            world_size=world_size,
            global_batch_size=batch,
            network=NetworkProfile(one_way_delay_s=delay_s) if delay_s else None,
            epochs=len(_ACCURACIES),
        )
        for world_size, batch, delay_s in measured
    ]


def add_measured_sweep(session: Session) -> None:
    """Add it as the first of the store, with a course of each job's training."""
    agents = [add_agent(session, f"measured-{number}") for number in (1, 2)]
    specs = _specs()
    for job_id, spec in zip(add_sweep(session, *specs, name="scaling"), specs, strict=True):
        session.get_one(JobRow, job_id).state = JobState.SUCCEEDED
        gang = agents[: spec.world_size]
        token = add_attempt(session, job_id, gang, state=AttemptState.SUCCEEDED)
        delay_s = spec.network.one_way_delay_s if spec.network else 0.0
        step_time_s = spec.global_batch_size / spec.world_size * 1e-3 + 4 * delay_s + 1e-3
        add_measurement(
            session,
            f"job {job_id}",
            job_id=job_id,
            attempt_id=token,
            model=spec.model,
            dataset=spec.dataset,
            strategy=spec.strategy,
            world_size=spec.world_size,
            global_batch_size=spec.global_batch_size,
            one_way_delay_s=delay_s,
            step_time_s=step_time_s,
            throughput_examples_per_s=spec.global_batch_size / step_time_s,
            time_per_epoch_s=_STEPS_OF_AN_EPOCH * step_time_s,
            epochs=len(_ACCURACIES),
            instance_type="Standard_D4s_v5",
            fingerprint="x",
        )
        day = session.get_one(AttemptRow, token).leased_at.date()
        for rank in range(spec.world_size):
            samples = [Sample(tick=tick, cpu_ratio=0.5, resident_bytes=10**8) for tick in range(5)]
            insert_samples(session, day=day, token=token, rank=rank, samples=samples)
        for number, accuracy in enumerate(_ACCURACIES):
            epoch = Epoch(
                epoch=number,
                train_s=_STEPS_OF_AN_EPOCH * step_time_s,
                step_count=_STEPS_OF_AN_EPOCH,
                train_loss=None,
                val_loss=None,
                val_accuracy_ratio=accuracy,
            )
            insert_epoch(session, token=token, rank=0, epoch=epoch)
