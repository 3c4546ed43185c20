"""Ranks of PyTorch that hold shards of one model, against one rank that holds all of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from farm import registry
from farm.configuration.catalogue import GangShape
from farm.configuration.spec import JobSpec, TrainingPass
from tests.integration.trainers.torch.torch_ranks import Came, count_messages, model_of, ranks

pytestmark = pytest.mark.torch

JOB = JobSpec(
    model="wide",
    dataset="digits",
    strategy="torch_fsdp",
    world_size=2,
    global_batch_size=65,
    steps=1,
)
ALONE = replace(JOB, strategy="torch_ddp", world_size=1)


@pytest.fixture(scope="module")
def alone() -> Came:
    (came,) = ranks(ALONE)
    return came


@pytest.mark.parametrize(("world_size", "parts"), [(2, 1), (3, 4)])
def test_ranks_that_hold_shards_learn_what_one_with_all_weights_does(
    alone: Came, world_size: int, parts: int
) -> None:
    came = ranks(replace(JOB, world_size=world_size, axes={"gradient_accumulation_steps": parts}))
    for k, loss in enumerate(alone.losses):
        assert sum(rank.losses[k] for rank in came) == pytest.approx(loss, rel=1e-4)
    for rank in came:
        assert rank.sums.total == pytest.approx(alone.sums.total, rel=1e-5)
        assert rank.sums.total_of_squares == pytest.approx(alone.sums.total_of_squares, rel=1e-5)
        assert rank.evaluation.val_loss == pytest.approx(alone.evaluation.val_loss, rel=1e-4)
        assert rank.evaluation.val_accuracy_ratio == alone.evaluation.val_accuracy_ratio
        assert rank.again == rank.losses
        assert rank.held_count == pytest.approx(alone.held_count / world_size, rel=0.01)


def test_a_forward_pass_gathers_the_weights_and_changes_nothing(alone: Came) -> None:
    came = ranks(replace(JOB, training_pass=TrainingPass.FORWARD))
    (one,) = ranks(replace(ALONE, training_pass=TrainingPass.FORWARD))
    for rank in came:
        assert rank.sums.total == pytest.approx(one.sums.total, rel=1e-12)
        assert rank.sums.total != alone.sums.total
    assert sum(rank.losses[0] for rank in came) == pytest.approx(one.losses[0], rel=1e-5)


@pytest.mark.parametrize(
    ("model", "dataset", "parts"), [("wide", "digits", 2), ("gpt2_tiny", "synthetic_tokens", 1)]
)
def test_a_step_has_the_messages_that_theory_says(model: str, dataset: str, parts: int) -> None:
    job = replace(
        JOB,
        model=model,
        dataset=dataset,
        global_batch_size=4,
        axes={"gradient_accumulation_steps": parts},
    )
    facts = registry.dataset(dataset).facts
    size = model_of(job).describe(facts.example_shape, facts.class_count)
    assert size is not None
    assert len(size.unit_bytes) == 2  # of gpt2_tiny its layers and its tables
    shape = GangShape(
        world_size=2, gradient_accumulation_steps=parts, unit_count=len(size.unit_bytes)
    )
    expected = registry.strategy("torch_fsdp").traffic(shape, size.gradient_bytes).messages
    for rank in ranks(job, count_messages):
        assert len(rank.messages) == expected
