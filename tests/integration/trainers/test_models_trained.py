"""Models of sequences, trained by real ranks: two of them come to what one does."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from farm import registry
from farm.configuration.catalogue import GangShape
from farm.configuration.spec import JobSpec
from farm.messages.trainer_lines import Started
from tests.integration.trainer_process import gang, results

WORKLOADS = (
    ("gpt2_tiny", "synthetic_tokens", 12),
    ("lstm", "synthetic_tokens", 12),
    ("vit_tiny", "synthetic_digits", 3),
)
STRATEGIES = (("single", "mwms_ring"), ("torch_ddp", "torch_ddp"))
# The quick ones run with every change.
TRAINED = [
    pytest.param(
        model,
        dataset,
        steps,
        *strategies,
        id=f"{model}-{strategies[1]}",
        marks=() if (model, strategies[1]) == ("gpt2_tiny", "torch_ddp") else pytest.mark.slow,
    )
    for model, dataset, steps in WORKLOADS
    for strategies in STRATEGIES
]


@pytest.mark.tensorflow
@pytest.mark.torch
@pytest.mark.parametrize(("model", "dataset", "steps", "for_one", "for_two"), TRAINED)
def test_two_ranks_learn_what_one_does_and_send_what_a_ring_must(
    model: str, dataset: str, steps: int, for_one: str, for_two: str, tmp_path: Path
) -> None:
    alone = JobSpec(
        model=model,
        dataset=dataset,
        strategy=for_one,
        world_size=1,
        global_batch_size=9,  # uneven over two ranks
        steps=steps,
        warmup_step_count=1,
    )
    (tmp_path / "alone").mkdir()
    with gang(alone, tmp_path / "alone") as trainers:
        (one,) = results(trainers)
    with gang(replace(alone, strategy=for_two, world_size=2), tmp_path) as trainers:
        two = results(trainers)
        [started] = trainers[0].seen(Started)

    size = registry.model_size(model, dataset)
    assert size is not None
    assert started.parameter_count == size.parameter_count
    assert started.gradient_bytes == size.gradient_bytes
    if not model.startswith("vit"):  # which needs another optimizer to learn in so few steps
        # ln(classes) is the loss of a model that knows nothing; the initial weights have no less.
        assert one.train_loss is not None
        assert one.train_loss < math.log(registry.dataset(dataset).facts.class_count)
    traffic = registry.strategy(for_two).traffic(GangShape(world_size=2), size.gradient_bytes)
    for result in two:
        for key in ("weights_sum", "weights_square_sum"):
            assert result.details[key] == pytest.approx(one.details[key], rel=1e-5)
        assert result.payload_tx_bytes is not None
        sent = result.payload_tx_bytes / result.window_step_count
        assert sent == pytest.approx(traffic.bytes, rel=0.1)
    assert two[0].val_accuracy_ratio == pytest.approx(one.val_accuracy_ratio, abs=0.01)
