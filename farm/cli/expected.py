"""What `farm submit --dry-run` expects of a sweep: its time and its cost."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from farm.cli import cells
from farm.cli.advice import memory_of, prices_of
from farm.cli.session import store
from farm.config import Settings
from farm.core.spec import TCP_PROXY, JobSpec, NetworkProfile
from farm.recommend.expectation import Expectation, ExpectedJob, expectation, step_count
from farm.recommend.predictions import Answered, predict_queries
from farm.registry import catalogue
from farm.store.engine import reading
from farm.store.outcomes import ORIGIN
from farm.store.training_runs import TrainingRun, last_training_runs

_RUNS_LOOKED_AT = 50


def expected(
    loaded: Settings, jobs: Sequence[JobSpec], *, prices_file: Path | None, region: str | None
) -> Expectation:
    """Predict every job from the farm's own measurements.

    Raises:
        FarmError: there is no store, or the prices do not fit.
    """
    prices = prices_of(loaded, prices_file, region)
    # Repetitions are alike, and a large sweep has many.
    distinct = list({spec.cell_hash: spec for spec in jobs}.values())
    with store(loaded) as engine, reading(engine) as session:
        queries = [_query(spec) for spec in distinct]
        answers = predict_queries(session, queries, origin=ORIGIN, memory=memory_of(loaded))
        runs = last_training_runs(session, limit=_RUNS_LOOKED_AT)
    by_cell = {s.cell_hash: a for s, a in zip(distinct, answers, strict=True)}
    return expectation(
        (_expected_job(spec, by_cell[spec.cell_hash]) for spec in jobs),
        overhead_s=_overhead_s(runs),
        prices_usd_per_hour=prices.usd_per_hour,
    )


def print_expectation(found: Expectation) -> None:
    """Say in some lines what is expected, and of which jobs nothing is known."""
    if found.known_count:
        steps = f"{cells.estimate(found.training_s)} of training one after another"
        high = cells.estimate(found.training_high_s)
        start = (
            "starting not known"
            if found.overhead_s is None
            else f"{cells.estimate(found.overhead_s)} a job to start and end"
        )
        click.echo(
            f"expected of {found.known_count} of {found.job_count} jobs: {steps} (90 %: at most "
            f"{high}), {start}, {found.machine_s / 3600:.3g} machine hours, "
            + ("cost not known" if found.cost_usd is None else f"{found.cost_usd:.4f} USD")
        )
    for reason, count in found.unknown.items():
        click.echo(f"nothing is known of {count} jobs: {reason}")


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
        "network": spec.emulator if spec.emulator == TCP_PROXY else None,
        "world_size": spec.world_size,
        "server_count": spec.server_count,
        "global_batch_size": spec.global_batch_size,
        "one_way_delay_s": network.one_way_delay_s,
        "jitter_s": network.jitter_s,
        "packet_loss_ratio": network.packet_loss_ratio,
        "bandwidth_bytes_per_s": network.bandwidth_bytes_per_s,
    }


def _expected_job(spec: JobSpec, answer: Answered) -> ExpectedJob:
    meant = answer.configuration
    usual = meant.instance_type if meant else None
    return ExpectedJob(
        spec=spec,
        prediction=answer.prediction,
        instance_type=spec.labels.get("instance_type", usual),
        train_examples_count=_examples_count(spec),
    )


def _examples_count(spec: JobSpec) -> int | None:
    dataset = catalogue().datasets.get(spec.dataset)
    return dataset.train_examples_count if dataset else None


def _overhead_s(runs: Iterable[TrainingRun]) -> float | None:
    """Return what a job takes beside its steps: the gang's start, data, evaluation, the end."""
    rest_s = [
        max(0.0, run.duration_s - steps * run.step_time_s)
        for run in runs
        if (steps := step_count(run.spec, _examples_count(run.spec))) is not None
    ]
    return statistics.median(rest_s) if rest_s else None
