"""How long a sweep is expected to take, and what it costs. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from farm.core.spec import JobSpec
from farm.recommend.prediction import Prediction


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedJob:
    """A job with what is predicted of its steps. `instance_type`: of its machines, if known."""

    spec: JobSpec
    prediction: Prediction
    instance_type: str | None
    train_examples_count: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """Of the `known_count` jobs of which something can be said; `unknown`: reason to number.

    `training_s` is their time one after another, and `training_high_s` the sum of the upper ends of
    the 90 % intervals. `machine_s` has each machine's time, starting included: `overhead_s` a job,
    the median of jobs that succeeded, None where there were none. `cost_usd`: None where the price
    of a machine is not known.
    """

    job_count: int
    known_count: int
    unknown: Mapping[str, int]
    training_s: float
    training_high_s: float
    overhead_s: float | None
    machine_s: float
    cost_usd: float | None


def expectation(
    jobs: Iterable[ExpectedJob],
    *,
    overhead_s: float | None,
    prices_usd_per_hour: Mapping[str, float],
) -> Expectation:
    """Add up what is predicted of a sweep's jobs."""
    job_count = known_count = 0
    unknown: Counter[str] = Counter()
    training_s = high_s = machine_s = 0.0
    cost_usd: float | None = 0.0
    for job in jobs:
        job_count += 1
        steps, step_s = step_count(job.spec, job.train_examples_count), job.prediction.step_time_s
        if step_s is None or steps is None:
            unknown[job.prediction.unknown_because or "the length of its epochs is not known"] += 1
            continue
        known_count += 1
        training_s += steps * step_s
        high_s += steps * (job.prediction.high_s or step_s)
        machine_count = job.spec.world_size + job.spec.server_count
        own_s = machine_count * (steps * step_s + (overhead_s or 0.0))
        machine_s += own_s
        price = prices_usd_per_hour.get(job.instance_type or "")
        cost_usd = None if price is None or cost_usd is None else cost_usd + own_s * price / 3600
    return Expectation(
        job_count=job_count,
        known_count=known_count,
        unknown=dict(unknown),
        training_s=training_s,
        training_high_s=high_s,
        overhead_s=overhead_s,
        machine_s=machine_s,
        cost_usd=cost_usd if known_count else None,
    )


def step_count(spec: JobSpec, train_examples_count: int | None) -> int | None:
    """Return how many steps a job runs, the warm-up's too."""
    if spec.steps is not None:
        return spec.warmup_step_count + spec.steps
    if spec.epochs is None or train_examples_count is None:
        return None
    steps_per_epoch = -(-train_examples_count // spec.global_batch_size)
    return spec.warmup_step_count + spec.epochs * steps_per_epoch
