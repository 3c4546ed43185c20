"""Expected duration and cost of a sweep, from the farm's measurements. Reads only."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from farm.configuration.axes import JOB_AXES
from farm.configuration.own_data import find_dataset
from farm.configuration.spec import TCP_PROXY, JobSpec, NetworkProfile
from farm.measuring.machine_time import cost_usd
from farm.measuring.measurement import OWN_ORIGIN
from farm.recommend.cache.knowledge import RecommenderCache
from farm.recommend.configuration import Configuration, network_of
from farm.recommend.contracts import Prediction
from farm.recommend.predictions import QueryAnswer, predict_queries
from farm.recommend.prices import Prices
from farm.recommend.setup import Setup
from farm.registry import catalogue
from farm.statistics import median
from farm.store.gangs.attempt_measurements import measured_network
from farm.store.measurements.measured_jobs import TrainingRun, last_training_runs

_RUNS_LOOKED_AT = 50
_FIELDS = {field.name for field in dataclasses.fields(Configuration)}
# What a job and a configuration of the recommender say alike.
_SAID_ALIKE = tuple(axis.field for axis in JOB_AXES if axis.field in _FIELDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedJob:
    """A job with its predicted step time. `instance_type`: of its machines, if known."""

    spec: JobSpec
    prediction: Prediction
    instance_type: str | None
    train_examples_count: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineTime:
    """A sweep's use of machines of one instance type; None means not known."""

    instance_type: str | None
    machine_s: float
    price_usd_per_hour: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """Of the `known_count` jobs of which something can be said; `unknown`: reason to number.

    `training_s` is their time one after another; `training_low_s` and `training_high_s` are the
    sums of the ends of the 90 % intervals, so the sum lies between them more surely than that.
    `machine_s` has each machine's time, starting included: `overhead_s` a job, the median of jobs
    that succeeded, None where there were none. `cost_usd` and its ends: None where the price of a
    machine is not known.
    """

    job_count: int
    known_count: int
    unknown: Mapping[str, int]
    training_s: float
    training_low_s: float
    training_high_s: float
    overhead_s: float | None
    machine_s: float
    machines: tuple[MachineTime, ...]
    cost_usd: float | None
    cost_low_usd: float | None
    cost_high_usd: float | None


def expectation(
    jobs: Iterable[ExpectedJob],
    *,
    overhead_s: float | None,
    prices_usd_per_hour: Mapping[str, float],
) -> Expectation:
    """Add up the predictions of a sweep's jobs."""
    job_count = known_count = 0
    unknown: Counter[str] = Counter()
    training = _Range()
    by_type: dict[str | None, _Range] = {}
    for job in jobs:
        job_count += 1
        steps, step_s = step_count(job.spec, job.train_examples_count), job.prediction.step_time_s
        if step_s is None or steps is None:
            unknown[job.prediction.unknown_because or "the length of its epochs is not known"] += 1
            continue
        known_count += 1
        low_s, high_s = job.prediction.low_s, job.prediction.high_s
        own = _Range(
            steps * step_s,
            steps * (step_s if low_s is None else low_s),
            steps * (step_s if high_s is None else high_s),
        )
        training.add(own)
        machine_count = job.spec.agent_count
        of_type = by_type.setdefault(job.instance_type, _Range())
        of_type.add(own, times=machine_count, plus=machine_count * (overhead_s or 0.0))
    cost_usd = _cost_usd(by_type, prices_usd_per_hour)
    return Expectation(
        job_count=job_count,
        known_count=known_count,
        unknown=dict(unknown),
        training_s=training.middle,
        training_low_s=training.low,
        training_high_s=training.high,
        overhead_s=overhead_s,
        machine_s=sum((time_s.middle for time_s in by_type.values()), 0.0),
        machines=tuple(
            MachineTime(
                instance_type=name,
                machine_s=time_s.middle,
                price_usd_per_hour=prices_usd_per_hour.get(name or ""),
            )
            for name, time_s in sorted(by_type.items(), key=lambda item: item[0] or "")
        ),
        cost_usd=cost_usd.middle if cost_usd else None,
        cost_low_usd=cost_usd.low if cost_usd else None,
        cost_high_usd=cost_usd.high if cost_usd else None,
    )


@dataclass(slots=True)
class _Range:
    """A sum that grows, with the sums of both ends."""

    middle: float = 0.0
    low: float = 0.0
    high: float = 0.0

    def add(self, other: _Range, *, times: float = 1.0, plus: float = 0.0) -> None:
        self.middle += times * other.middle + plus
        self.low += times * other.low + plus
        self.high += times * other.high + plus


def _cost_usd(
    by_type: Mapping[str | None, _Range], prices_usd_per_hour: Mapping[str, float]
) -> _Range | None:
    """Return what the machine times cost; None where one has no price, or there are none."""
    total = _Range()
    for name, time_s in by_type.items():
        usd_per_s = cost_usd(1, 1.0, prices_usd_per_hour.get(name or ""))
        if usd_per_s is None:
            return None
        total.add(time_s, times=usd_per_s)
    return total if by_type else None


def step_count(spec: JobSpec, train_examples_count: int | None) -> int | None:
    """Return how many steps a job runs, the warm-up's too."""
    if spec.steps is not None:
        return spec.warmup_step_count + spec.steps
    if spec.epochs is None or train_examples_count is None:
        return None
    steps_per_epoch = -(-train_examples_count // spec.global_batch_size)
    return spec.warmup_step_count + spec.epochs * steps_per_epoch


def expected(
    session: Session,
    jobs: Sequence[JobSpec],
    *,
    prices: Prices,
    cache: RecommenderCache,
    may_wait: bool = True,
) -> Expectation:
    """Predict every job from the farm's own measurements. `may_wait`: see `Fits`."""
    # Repetitions are alike, and a large sweep has many.
    hashes = [spec.cell_hash for spec in jobs]
    distinct = dict(zip(hashes, jobs, strict=True))
    queries = [_query(spec) for spec in distinct.values()]
    answers = predict_queries(session, queries, origin=OWN_ORIGIN, cache=cache, may_wait=may_wait)
    by_cell = dict(zip(distinct, answers, strict=True))
    return expectation(
        (_expected_job(spec, by_cell[key]) for spec, key in zip(jobs, hashes, strict=True)),
        overhead_s=_overhead_s(last_training_runs(session, limit=_RUNS_LOOKED_AT)),
        prices_usd_per_hour=prices.usd_per_hour,
    )


def predicted_lengths_s(
    session: Session, cells: Mapping[str, JobSpec], *, cache: RecommenderCache
) -> dict[str, float]:
    """Predict by cell hash how long a job holds its agents; without those that nothing is known of.

    Does not wait for a model that has to be fitted first.
    """
    runs = last_training_runs(session, limit=_RUNS_LOOKED_AT)
    if not runs:
        return {}
    queries = [_query(spec) for spec in cells.values()]
    answers = predict_queries(session, queries, origin=OWN_ORIGIN, cache=cache, may_wait=False)
    overhead_s = _overhead_s(runs) or 0.0
    found = {}
    for (cell_hash, spec), answer in zip(cells.items(), answers, strict=True):
        steps, step_s = step_count(spec, _examples_count(spec)), answer.prediction.step_time_s
        if steps is not None and step_s is not None:
            found[cell_hash] = overhead_s + steps * step_s
    return found


def _query(spec: JobSpec) -> dict[str, Any]:
    network = spec.network or NetworkProfile()
    return {
        **{name: value for name, value in spec.labels.items() if name == "instance_type"},
        **{field: getattr(spec, field) for field in _SAID_ALIKE},
        **network.by_field,
        "setup": Setup.of_job(spec),
        "network": _network_of(spec),
    }


def _network_of(spec: JobSpec) -> str | None:
    """Return the name under which measurements of the job's network will stand."""
    is_touched = spec.network is not None and not spec.network.is_untouched
    proxy = TCP_PROXY if is_touched and spec.emulator == TCP_PROXY else None
    return network_of(measured_network(spec.interface, proxy))


def _expected_job(spec: JobSpec, answer: QueryAnswer) -> ExpectedJob:
    resolved = answer.configuration
    usual = resolved.instance_type if resolved else None
    return ExpectedJob(
        spec=spec,
        prediction=answer.prediction,
        instance_type=spec.labels.get("instance_type", usual),
        train_examples_count=_examples_count(spec),
    )


def _examples_count(spec: JobSpec) -> int | None:
    dataset = find_dataset(spec.dataset, catalogue().datasets)
    return dataset.train_examples_count if dataset else None


def _overhead_s(runs: Iterable[TrainingRun]) -> float | None:
    """Return what a job takes beside its steps: the gang's start, data, evaluation, the end."""
    return median(
        max(0.0, run.duration_s - steps * run.step_time_s)
        for run in runs
        if (steps := step_count(run.spec, _examples_count(run.spec))) is not None
    )
