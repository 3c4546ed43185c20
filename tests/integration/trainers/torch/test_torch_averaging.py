"""PyTorch ranks that average weights, trained for real and held against their mathematics."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from farm import registry
from farm.configuration.axes import spec_values
from farm.configuration.spec import JobSpec
from farm.messages.trainer_lines import GoLine, TrainerResult
from farm.trainers.contracts import RankContext
from farm.trainers.loop.batches import endless_steps
from tests.integration.trainer_process import gang, results

pytestmark = [pytest.mark.torch, pytest.mark.alone]

WEIGHTS_TOLERANCE = 1e-5
ADAMW = {"optimizer": "adamw", "learning_rate": 0.001}
# 1437 = 4 * 359 + 1: in the last step of each epoch rank 1 has no examples. Averages are due after
# steps 2, 5 and 8 of ten: the warm-up must leave no trace in when they are, both epochs end between
# two of them, and what is evaluated then is a mean that nobody trains on from.
JOB = JobSpec(
    model="mlp",
    dataset="digits",
    strategy="torch_local_sgd",
    world_size=2,
    global_batch_size=359,
    epochs=2,
    warmup_step_count=4,
    steps_between_averages=3,
)
EVEN = replace(
    JOB, global_batch_size=128, epochs=None, steps=8, warmup_step_count=2, steps_between_averages=1
)


def train(job: JobSpec, folder: Path) -> list[TrainerResult]:
    folder.mkdir()
    with gang(job, folder) as trainers:
        return results(trainers)


def sums_of(result: TrainerResult) -> list[Any]:
    return [result.details["weights_sum"], result.details["weights_square_sum"]]


def assert_weights(found: list[TrainerResult], sums: list[float]) -> None:
    for result in found:
        assert sums_of(result) == pytest.approx(sums, rel=WEIGHTS_TOLERANCE)


def alone(job: JobSpec) -> Any:
    """Return the engine of one rank, built in this process."""
    dataset = registry.dataset(job.dataset)
    return registry.strategy("torch_ddp").build(
        RankContext(
            job=replace(job, strategy="torch_ddp", world_size=1),
            rank=0,
            role="worker",
            go=GoLine(cluster={"worker": ("127.0.0.1:1",)}, task_index=0),
            model=registry.model(job.model),
            dataset=dataset.facts,
            data=dataset.load(()),
            peer_timeout_s=10.0,
        )
    )


def mean_of(states: list[Any]) -> dict[str, Any]:
    every = [weights for weights, _ in states]
    return {name: sum(weights[name] for weights in every) / len(every) for name in every[0]}


class Outer:
    """DiLoCo's outer step, as its paper writes it, of weights by name."""

    def __init__(self, job: JobSpec, weights: dict[str, Any]) -> None:
        chosen = spec_values(job)
        self._rate = cast(float, chosen["outer_learning_rate"])
        self._momentum = cast(float, chosen["outer_momentum"])
        self._weights = weights
        self._velocities: dict[str, Any] = dict.fromkeys(weights, 0.0)

    def step(self, mean: dict[str, Any]) -> dict[str, Any]:
        for name, weight in self._weights.items():
            gradient = weight - mean[name]
            velocity = self._momentum * self._velocities[name] + gradient
            self._velocities[name] = velocity
            update = self._rate * (gradient + self._momentum * velocity)
            self._weights = {**self._weights, name: weight - update}
        return self._weights


def reference(job: JobSpec, *, step_count: int) -> tuple[list[float], float]:
    """Let one engine be every rank in turn; return the sums of the weights and the loss."""
    warmup_step_count = job.axes.get("lr_warmup_steps", 1)
    own_axes = {name: value for name, value in job.axes.items() if name != "lr_warmup_steps"}
    engine = alone(replace(job, axes=own_axes))
    rate = cast(float, spec_values(job)["learning_rate"])
    states = [engine.save()] * job.world_size
    outer = Outer(job, states[0][0])
    ranks = [endless_steps(job, rank=rank, examples_count=1437) for rank in range(job.world_size)]
    for number, steps in enumerate(itertools.islice(zip(*ranks, strict=True), step_count), 1):
        for rank, step in enumerate(steps):
            if len(step.indices):
                weights, (of_optimizer,) = states[rank]
                group = dict(of_optimizer["param_groups"][0])
                group["lr"] = rate * min(1.0, number / cast(int, warmup_step_count))
                engine.restore((weights, [{**of_optimizer, "param_groups": [group]}]))
                engine.step(step.indices, examples_count=len(step.indices))
                states[rank] = engine.save()
        if number % job.steps_between_averages == 0:
            mean = mean_of(states)
            if job.strategy == "torch_diloco":
                mean = outer.step(mean)
            states = [(mean, optimizer) for _, optimizer in states]
    engine.restore((mean_of(states), states[0][1]))
    sums = engine.weight_sums()
    return [sums.total, sums.total_of_squares], engine.evaluate(lambda: None).val_loss


def test_two_ranks_that_average_every_step_are_synchronous_training(tmp_path: Path) -> None:
    # Shares are equal, and momentum is linear: see farm.trainers.strategies.local_sgd.
    synchronous = train(replace(EVEN, strategy="torch_ddp"), tmp_path / "synchronous")
    averaged = train(EVEN, tmp_path / "averaged")
    assert_weights(averaged, sums_of(synchronous[0]))
    assert averaged[0].val_accuracy_ratio == pytest.approx(
        synchronous[0].val_accuracy_ratio, abs=0.005
    )


@pytest.mark.parametrize("axes", [{}, ADAMW, {"lr_warmup_steps": 9}])
def test_local_sgd_is_what_its_definition_says(axes: dict[str, Any], tmp_path: Path) -> None:
    job = replace(JOB, axes=axes)
    found = train(job, tmp_path / "ranks")
    sums, loss = reference(job, step_count=10)
    assert_weights(found, sums)
    assert found[0].details["val_loss"] == pytest.approx(loss, rel=1e-4)
    # The full steps, in which both have examples.
    assert [r.exchange.update_count for r in found if r.exchange] == [8, 8]


@pytest.mark.parametrize("axes", [ADAMW, {"outer_learning_rate": 0.5, "outer_momentum": 0.0}])
def test_diloco_is_what_its_paper_says(axes: dict[str, Any], tmp_path: Path) -> None:
    job = replace(JOB, strategy="torch_diloco", steps_between_averages=2, axes=axes)
    found = train(job, tmp_path / "ranks")
    sums, loss = reference(job, step_count=10)
    assert_weights(found, sums)
    assert found[0].details["val_loss"] == pytest.approx(loss, rel=1e-4)
    chosen = spec_values(job)
    for name in ("optimizer", "outer_learning_rate", "outer_momentum"):
        assert found[0].details[name] == chosen[name]


def test_moving_statistics_are_averaged_with_the_weights(tmp_path: Path) -> None:
    # Few steps: rounding grows fast in a deep model. Rank 0's own statistics differ by 6e-4.
    job = replace(EVEN, model="resnet18", global_batch_size=16, steps=2, warmup_step_count=0)
    found = train(job, tmp_path / "ranks")
    _, loss = reference(job, step_count=2)
    assert found[0].details["val_loss"] == pytest.approx(loss, rel=1e-4)


def test_a_profile_has_the_averages_of_whole_rounds(tmp_path: Path) -> None:
    job = replace(EVEN, steps_between_averages=3, steps=12)
    for result in train(job, tmp_path / "ranks"):
        assert result.profile is not None
        ratios = result.profile.idle_ratios
        assert 0.0 < result.profile.communication_s < result.profile.step_time_s
        # 15 steps came before: 2 of the warm-up, 12 full ones and a partial one.
        assert [step for step, ratio in enumerate(ratios) if ratio > 0.0] == [2, 5, 8]
