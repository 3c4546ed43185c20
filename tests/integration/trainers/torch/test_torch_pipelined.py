"""Ranks of PyTorch that hold stages of one model, against one rank that holds all of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from farm import registry
from farm.configuration.axes import spec_values
from farm.configuration.model_size import PipelineCut
from farm.configuration.spec import JobSpec, TrainingPass
from tests.integration.trainers.torch.torch_ranks import Came, count_messages, ranks

pytestmark = pytest.mark.torch

JOB = JobSpec(
    model="gpt2_tiny",
    dataset="synthetic_tokens",
    strategy="torch_pipeline",
    world_size=2,
    global_batch_size=10,
    steps=1,
    # 10 is a multiple of it, and of the batches of 1 and 3 each example is a microbatch.
    axes={"pipeline_microbatches": 5},
)


def alone(job: JobSpec) -> Came:
    axes = {name: value for name, value in job.axes.items() if name != "pipeline_microbatches"}
    (came,) = ranks(replace(job, strategy="torch_ddp", world_size=1, axes=axes))
    return came


@pytest.mark.parametrize(
    ("model", "dataset", "world_size", "axes"),
    [
        # Two ranks have the table of embeddings, and of three the second has none.
        ("gpt2_tiny", "synthetic_tokens", 2, {}),
        ("gpt2_tiny", "synthetic_tokens", 3, {"optimizer": "adamw", "lr_warmup_steps": 3}),
        ("lstm", "synthetic_tokens", 2, {}),
        ("vit_tiny", "digits", 2, {}),
        ("mlp", "digits", 2, {}),
        ("gpt2_tiny", "synthetic_tokens", 3, {"pipeline_cut": "weights"}),
        # With one microbatch its statistics are those of one rank's batch.
        ("resnet18", "digits", 3, {"pipeline_microbatches": 1, "learning_rate": 1e-4}),
    ],
)
def test_stages_learn_together_what_one_rank_does(
    model: str, dataset: str, world_size: int, axes: dict[str, object]
) -> None:
    job = replace(JOB, model=model, dataset=dataset, axes={**JOB.axes, **axes})
    one = alone(job)
    came = ranks(replace(job, world_size=world_size))
    size = registry.model_size(model, dataset)
    assert size is not None
    by = PipelineCut(spec_values(job)["pipeline_cut"])
    stages = size.stages(world_size, by=by)
    assert stages is not None
    for place, (rank, stage) in enumerate(zip(came, stages, strict=True)):
        assert rank.losses == came[0].losses
        assert rank.losses == pytest.approx(one.losses, rel=1e-4)
        assert rank.sums.total == pytest.approx(one.sums.total, rel=1e-5, abs=1e-4)
        assert rank.sums.total_of_squares == pytest.approx(one.sums.total_of_squares, rel=1e-5)
        assert rank.evaluation == came[0].evaluation
        assert rank.evaluation.val_loss == pytest.approx(one.evaluation.val_loss, rel=1e-4)
        assert rank.evaluation.val_accuracy_ratio == one.evaluation.val_accuracy_ratio
        assert rank.again == rank.losses
        weight_bytes = stage.weight_bytes + sum(size.table_bytes[t] for t in stage.tables)
        held = rank.settings["weight_bytes_by_stage"]
        assert isinstance(held, list)
        assert held[place] == weight_bytes
        # Beside them it may have statistics, and one bias of an LSTM that stays 0.
        assert 4 * rank.held_count == pytest.approx(weight_bytes, rel=0.01)


def test_numbers_of_half_precision_are_handed_on_as_whole_ones() -> None:
    job = replace(JOB, axes={**JOB.axes, "precision": "bfloat16"})
    one = alone(job)
    for rank in ranks(job):
        assert rank.losses == pytest.approx(one.losses, rel=0.01)
        assert rank.sums.total_of_squares == pytest.approx(one.sums.total_of_squares, rel=1e-3)


def test_a_forward_pass_changes_nothing() -> None:
    job = replace(JOB, training_pass=TrainingPass.FORWARD)
    one = alone(job)
    for rank in ranks(job):
        assert rank.losses == pytest.approx(one.losses, rel=1e-5)
        assert rank.sums.total == pytest.approx(one.sums.total, rel=1e-9)


@pytest.mark.parametrize(("model", "world_size"), [("gpt2_tiny", 2), ("lstm", 3)])
def test_a_step_has_the_messages_that_theory_says(model: str, world_size: int) -> None:
    job = replace(JOB, model=model, world_size=world_size)
    gang = registry.gang_shape(spec_values(job))
    came = ranks(job, count_messages)
    messages = Counter(name for rank in came for name in rank.messages)
    # An all-reduce of two ranks is two messages of each.
    sent = messages["gloo:send"] + 2 * messages["gloo:all_reduce"]
    traffic = registry.strategy("torch_pipeline").traffic(gang, 0.0)
    assert sent == pytest.approx(traffic.messages * world_size)
    # Every rank asks for all microbatches and gradients before it sends the first one, so that none
    # waits for a round trip; the last one alone is not told the loss.
    for place, rank in enumerate(came):
        is_last = place == world_size - 1
        neighbour_count = (place > 0) + (not is_last)
        first_ones = rank.messages[: rank.messages.index("gloo:send")]
        assert first_ones == ("gloo:recv",) * (5 * neighbour_count + (not is_last))
