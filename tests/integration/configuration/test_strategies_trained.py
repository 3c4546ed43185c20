"""Every strategy on two ranks, for real: it trains, it sends what theory says, it ends well."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from farm.configuration.axes import spec_values
from farm.configuration.spec import JobSpec
from farm.messages.trainer_lines import Ready, Started, TrainerResult
from farm.registry import gang_shape
from farm.trainers.contracts import Strategy
from farm.trainers.strategies import STRATEGIES
from tests.integration.trainer_process import gang, go, results, started

pytestmark = pytest.mark.tensorflow

# 1437 = 3 * 381 + 294: every fourth step is partial, and both sizes are uneven over two ranks.
SINGLE = JobSpec(
    model="small_cnn",
    dataset="digits",
    strategy="single",
    world_size=1,
    global_batch_size=381,
    steps=10,
    warmup_step_count=2,
)


def job_of(strategy: Strategy) -> JobSpec:
    facts = strategy.facts
    return replace(
        SINGLE,
        strategy=facts.name,
        world_size=min(2, facts.max_world_size or 2),
        server_count=1 if facts.uses_servers else 0,
        replicas_per_rank=2 if "replicas_per_rank" in facts.axes else 1,
        steps_between_averages=2 if "steps_between_averages" in facts.axes else 1,
    )


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> TrainerResult:
    """The same training by one machine: what synchronous strategies are held against."""
    with gang(SINGLE, tmp_path_factory.mktemp("single")) as trainers:
        return results(trainers)[0]


def is_held_to_one_machine(strategy: Strategy) -> bool:
    """Whether its mathematics is that of one machine, from the very same initial weights."""
    return strategy.facts.is_synchronous and strategy.facts.framework == "tensorflow"


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda s: s.facts.name)
def test_a_strategy_trains_and_sends_what_its_theory_says(
    strategy: Strategy, alone: TrainerResult, tmp_path: Path
) -> None:
    job = job_of(strategy)
    with gang(job, tmp_path) as trainers:
        ended = results(trainers)[: job.world_size]
        begun = trainers[0].seen(Started)[0]
    assert ended[0].val_accuracy_ratio is not None
    assert all(math.isfinite(result.train_loss or math.nan) for result in ended)
    sent = sum(result.payload_tx_bytes or 0 for result in ended) / len(ended)
    # The last steps may be fewer than it takes until the next average.
    every = job.steps_between_averages
    step_count = ended[0].window_step_count // every * every
    assert begun.gradient_bytes is not None
    traffic = strategy.traffic(gang_shape(spec_values(job)), begun.gradient_bytes)
    partial_count = ended[0].window_step_count - ended[0].timed_step_count
    missing = partial_count * (1 - 294 / 381) if traffic.is_by_examples else 0
    expected = traffic.bytes * (step_count - missing)
    assert expected <= sent <= 1.1 * expected
    for result in ended:
        assert result.exchange is not None
        # An update for each of the timed steps, and none for the partial ones between them.
        assert result.exchange.update_count == result.timed_step_count < result.window_step_count
        # Only servers that wait for nobody know what came between a read and its update.
        is_asynchronous = strategy.facts.uses_servers and not strategy.facts.is_synchronous
        assert (result.exchange.staleness_counts is not None) == is_asynchronous
    if is_held_to_one_machine(strategy):
        for result in ended:
            # The order of summation differs, nothing else: float32 over thirteen updates.
            for key in ("weights_sum", "weights_square_sum"):
                assert result.details[key] == pytest.approx(alone.details[key], rel=1e-4)


def test_a_batch_may_be_shared_by_speed_without_changing_what_is_learnt(
    alone: TrainerResult, tmp_path: Path
) -> None:
    ring = replace(SINGLE, strategy="mwms_ring", world_size=2)
    with started(ring, tmp_path) as trainers:
        for trainer in trainers:
            trainer.wait_for(Ready)
        go(trainers, batch_weights=(0.8, 0.2))
        for result in results(trainers):
            for key in ("weights_sum", "weights_square_sum"):
                assert result.details[key] == pytest.approx(alone.details[key], rel=1e-4)
