"""Models of sequences, trained by real ranks: two of them come to what one does."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from pathlib import Path

import pytest

from farm import registry
from farm.configuration.axes import spec_values
from farm.configuration.catalogue import StrategyFacts
from farm.configuration.spec import JobSpec
from farm.messages.trainer_lines import Started, TrainerResult
from farm.trainers.strategies import STRATEGIES
from tests.integration.trainer_process import gang, results

# With how many steps; a vision transformer is large for what waits for it.
WORKLOADS = {
    "gpt2_tiny": ("synthetic_tokens", 12),
    "lstm": ("synthetic_tokens", 12),
    "vit_tiny": ("synthetic_digits", 3),
}
FOR_ONE = {"tensorflow": "single", "torch": "torch_ddp"}
FOR_TWO = [s.facts for s in STRATEGIES if s.facts.is_synchronous and s.facts.max_world_size != 1]
QUICK = ("gpt2_tiny", "torch_ddp")  # runs with every change
TRAINED = [
    pytest.param(
        model,
        strategy,
        id=f"{model}-{strategy.name}",
        marks=() if (model, strategy.name) == QUICK else pytest.mark.slow,
    )
    for model in WORKLOADS
    for strategy in FOR_TWO
    if model != "vit_tiny" or strategy.name in ("mwms_ring", "torch_ddp")
]


@functools.cache
def alone(model: str, framework: str, folder: Path) -> TrainerResult:
    with gang(job_of(model, FOR_ONE[framework]), folder) as trainers:
        (result,) = results(trainers)
    return result


def job_of(model: str, strategy: str) -> JobSpec:
    dataset, steps = WORKLOADS[model]
    return JobSpec(
        model=model,
        dataset=dataset,
        strategy=strategy,
        world_size=1,
        global_batch_size=9,  # uneven over two ranks
        steps=steps,
        warmup_step_count=1,
    )


@pytest.mark.tensorflow
@pytest.mark.torch
@pytest.mark.parametrize(("model", "strategy"), TRAINED)
def test_two_ranks_learn_what_one_does_and_send_what_theory_says(
    model: str, strategy: StrategyFacts, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    one = alone(model, strategy.framework, tmp_path_factory.getbasetemp())
    server_count = int(strategy.uses_servers)
    job = replace(job_of(model, strategy.name), world_size=2, server_count=server_count)
    with gang(job, tmp_path) as trainers:
        two = results(trainers)
        [started] = trainers[0].seen(Started)

    size = registry.model_size(model, job.dataset)
    assert size is not None
    assert started.parameter_count == size.parameter_count
    assert started.gradient_bytes == size.gradient_bytes
    if not model.startswith("vit"):  # which needs another optimizer to learn in so few steps
        # ln(classes) is the loss of a model that knows nothing; the initial weights have no less.
        assert one.train_loss is not None
        assert one.train_loss < math.log(registry.dataset(job.dataset).facts.class_count)
    gang_shape = registry.gang_shape(spec_values(job))
    traffic = registry.strategy(strategy.name).traffic(gang_shape, size.gradient_bytes)
    ranks = [result for result in two if result.train_loss is not None]
    assert len(ranks) == 2
    for result in ranks:
        for key in ("weights_sum", "weights_square_sum"):
            assert result.details[key] == pytest.approx(one.details[key], rel=1e-5)
    sent = sum(result.payload_tx_bytes or 0.0 for result in ranks) / 2 / ranks[0].window_step_count
    assert sent == pytest.approx(traffic.bytes, rel=0.1)
    assert ranks[0].val_accuracy_ratio == pytest.approx(one.val_accuracy_ratio, abs=0.01)
