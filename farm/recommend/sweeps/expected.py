"""Predicts time and cost of a sweep's jobs from the farm's measurements. Reads only."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy.orm import Session

from farm.configuration.own_data import find_dataset
from farm.configuration.spec import TCP_PROXY, JobSpec, NetworkProfile
from farm.recommend.cache.memory import Memory
from farm.recommend.configuration import layout_of, network_of
from farm.recommend.predictions import Answered, predict_queries
from farm.recommend.prices import Prices
from farm.recommend.sweeps.expectation import Expectation, ExpectedJob, expectation, step_count
from farm.registry import catalogue
from farm.store.gangs.outcomes import ORIGIN, measured_network
from farm.store.measurements.training_runs import TrainingRun, last_training_runs

_RUNS_LOOKED_AT = 50


def expected(
    session: Session,
    jobs: Sequence[JobSpec],
    *,
    prices: Prices,
    memory: Memory,
    may_wait: bool = True,
) -> Expectation:
    """Predict every job from the farm's own measurements. `may_wait`: see `Fits`."""
    # Repetitions are alike, and a large sweep has many.
    hashes = [spec.cell_hash for spec in jobs]
    distinct = dict(zip(hashes, jobs, strict=True))
    queries = [_query(spec) for spec in distinct.values()]
    answers = predict_queries(session, queries, origin=ORIGIN, memory=memory, may_wait=may_wait)
    by_cell = dict(zip(distinct, answers, strict=True))
    return expectation(
        (_expected_job(spec, by_cell[key]) for spec, key in zip(jobs, hashes, strict=True)),
        overhead_s=_overhead_s(last_training_runs(session, limit=_RUNS_LOOKED_AT)),
        prices_usd_per_hour=prices.usd_per_hour,
    )


def predicted_lengths_s(
    session: Session, cells: Mapping[str, JobSpec], *, memory: Memory
) -> dict[str, float]:
    """Predict by cell hash how long a job holds its agents; without those that nothing is known of.

    Does not wait for a model that has to be fitted first.
    """
    runs = last_training_runs(session, limit=_RUNS_LOOKED_AT)
    if not runs:
        return {}
    queries = [_query(spec) for spec in cells.values()]
    answers = predict_queries(session, queries, origin=ORIGIN, memory=memory, may_wait=False)
    overhead_s = _overhead_s(runs) or 0.0
    found = {}
    for (cell_hash, spec), answer in zip(cells.items(), answers, strict=True):
        steps, step_s = step_count(spec, _examples_count(spec)), answer.prediction.step_time_s
        if steps is not None and step_s is not None:
            found[cell_hash] = overhead_s + steps * step_s
    return found


def _query(spec: JobSpec) -> dict[str, Any]:
    network = spec.network or NetworkProfile()
    named = (
        {"instance_type": spec.labels["instance_type"]} if "instance_type" in spec.labels else {}
    )
    return {
        **named,
        "model": spec.model,
        "dataset": spec.dataset,
        "training_pass": spec.training_pass,
        "strategy": spec.strategy,
        "placement": layout_of(spec),
        "network": _network_of(spec),
        "world_size": spec.world_size,
        "server_count": spec.server_count,
        "global_batch_size": spec.global_batch_size,
        **network.by_field,
    }


def _network_of(spec: JobSpec) -> str | None:
    """Return the name under which measurements of the job's network will stand."""
    is_touched = spec.network is not None and not spec.network.is_untouched
    proxy = TCP_PROXY if is_touched and spec.emulator == TCP_PROXY else None
    return network_of(measured_network(spec.interface, proxy))


def _expected_job(spec: JobSpec, answer: Answered) -> ExpectedJob:
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
    rest_s = [
        max(0.0, run.duration_s - steps * run.step_time_s)
        for run in runs
        if (steps := step_count(run.spec, _examples_count(run.spec))) is not None
    ]
    return statistics.median(rest_s) if rest_s else None
