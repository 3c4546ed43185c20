"""`python -m tests.truths.tensorflow_reference`: what strategies must come to, in one process.

Prints JSON: for each name the sums of the weights and the accuracy. A process of its own, since
the replicas' devices can only be set up before TensorFlow is first used.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from farm import registry
from farm.configuration.catalogue import ModelFacts
from farm.configuration.spec import JobSpec
from farm.messages.trainer_lines import GoLine
from farm.trainers.contracts import Engine, Model, RankContext
from farm.trainers.loop.batches import StepBatch, epoch_steps

# Four full batches and one of a single example, so that all replicas but the first have none.
JOB = JobSpec(
    model="small_cnn",
    dataset="digits",
    strategy="single",
    world_size=1,
    global_batch_size=359,
    epochs=1,
    warmup_step_count=3,
)
EVEN = replace(JOB, global_batch_size=128, epochs=None, steps=8, warmup_step_count=2)
STEPS_BETWEEN_AVERAGES = 2


def main() -> None:
    replicated = replace(JOB, strategy="mirrored", replicas_per_rank=2)
    registry.strategy("mirrored").prepare(replicated, 1)
    single = build(JOB)
    initial = single.save()
    found = {"single": trained(single, epoch(JOB))}
    single.restore(initial)
    even = [step for step, _ in zip(epoch(EVEN), range(10), strict=False)]
    found["single_even"] = trained(single, even)
    for name in ("mirrored", "central_storage"):
        engine = build(replace(replicated, strategy=name))
        found[name] = trained(engine, epoch(JOB)) | {
            "settings": engine.settings,
            "exchange": dataclasses.asdict(engine.take_exchange()),  # type: ignore[arg-type]
            "collective_times_s": engine.trace(lambda e=engine: several_steps(e)),  # type: ignore[misc]
        }
    # Without a second mirrored engine, whose collectives would have the keys of the first.
    for name in ("single", "central_storage"):
        job = replace(JOB if name == "single" else replicated, strategy=name)
        model = Normalised()
        found[f"{name}_normalised"] = moving_mean(build(job, model), model)
    found["local_sgd"] = local_sgd(single, initial, world_size=2)
    print(json.dumps(found))


class Normalised:
    """A model with moving statistics."""

    facts = ModelFacts(name="normalised", summary="of a test")
    built: Any = None

    def build(self, example_shape: tuple[int, ...], class_count: int) -> Any:
        from keras import layers, models

        self.built = models.Sequential(
            [
                layers.Input(example_shape),
                layers.BatchNormalization(),
                layers.Dropout(0.5),
                layers.Flatten(),
                layers.Dense(class_count),
            ]
        )
        return self.built

    def describe(self, example_shape: tuple[int, ...], class_count: int) -> None:
        return None


def moving_mean(engine: Engine, model: Normalised) -> dict[str, object]:
    """Return the mean of the pixels, as batch normalisation has it after a step and restoring."""
    engine.step(np.arange(64, dtype=np.int32), examples_count=64)
    state: Any = engine.save()
    engine.restore(state)
    [found] = model.built.layers[0].moving_mean.numpy().tolist()
    return {"moving_mean": found, "accuracy": engine.evaluate(lambda: None).val_accuracy_ratio}


def build(job: JobSpec, model: Model | None = None) -> Engine:
    dataset = registry.dataset(job.dataset)
    rank_context = RankContext(
        job=job,
        rank=0,
        role="worker",
        go=GoLine(cluster={"worker": ("127.0.0.1:1",)}, task_index=0),
        model=model or registry.model(job.model),
        dataset=dataset.facts,
        data=dataset.load(()),
        peer_timeout_s=10.0,
    )
    return registry.strategy(job.strategy).build(rank_context)


def epoch(job: JobSpec, *, rank: int = 0) -> Iterator[StepBatch]:
    return epoch_steps(job, rank=rank, epoch=0, examples_count=1437)


def trained(engine: Engine, steps: Any) -> dict[str, object]:
    for step in steps:
        engine.step(step.indices, examples_count=step.examples_count)
    return outcome(engine)


def outcome(engine: Engine) -> dict[str, object]:
    weights = engine.weight_sums()
    accuracy_ratio = engine.evaluate(lambda: None).val_accuracy_ratio
    return {"weights": [weights.total, weights.total_of_squares], "accuracy": accuracy_ratio}


def several_steps(engine: Engine) -> None:
    for _ in range(4):
        engine.step(np.arange(8, dtype=np.int32), examples_count=8)


def local_sgd(engine: Engine, initial: Any, *, world_size: int) -> dict[str, object]:
    """Let one engine be every rank in turn, and average what the model has after every other step.

    A rank without examples makes no update. Optimizer state, which comes after the model's
    weights, stays with its rank.
    """
    job = replace(JOB, world_size=world_size)
    states = [initial] * world_size
    weight_count = len(registry.model(JOB.model).build((8, 8, 1), 10).variables)
    parts = [epoch(job, rank=rank) for rank in range(world_size)]
    for number, steps in enumerate(zip(*parts, strict=True)):
        for rank, step in enumerate(steps):
            if len(step.indices):
                engine.restore(states[rank])
                engine.step(step.indices, examples_count=len(step.indices))
                states[rank] = engine.save()
        if (number + 1) % STEPS_BETWEEN_AVERAGES == 0:
            means = mean_weights(states, weight_count)
            states = [means + state[weight_count:] for state in states]
    engine.restore(mean_weights(states, weight_count) + states[0][weight_count:])
    return outcome(engine)


def mean_weights(states: list[Any], weight_count: int) -> list[Any]:
    return [np.mean(arrays, axis=0) for arrays in list(zip(*states, strict=True))[:weight_count]]


if __name__ == "__main__":
    main()
