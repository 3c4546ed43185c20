"""What a model says of itself, against what Keras builds of the same layers."""

from __future__ import annotations

import dataclasses
import math
import resource
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from farm import registry
from farm.configuration.catalogue import DatasetFacts, ExampleKind
from farm.configuration.spec import JobSpec
from farm.messages.trainer_lines import GoLine, Started
from farm.placement.memory import least_memory_bytes
from farm.trainers.contracts import RankContext
from farm.trainers.datasets.arrays import with_hidden_tokens
from farm.trainers.models import MODELS, bert
from farm.trainers.models.architecture import Architecture
from tests.integration.trainer_process import gang, results

pytestmark = pytest.mark.tensorflow

JOB = JobSpec(
    model="mlp", dataset="digits", strategy="single", world_size=1, global_batch_size=8, steps=1
)
# A test's time and memory do not allow 138 million parameters at 224x224; the layers are the same.
LARGE = "synthetic_imagenet64"
DATASETS = [
    registry.dataset(name).facts
    for name in ("digits", "mnist", "cifar10", LARGE, "synthetic_tokens")
]
TAKEN = [
    (model, facts)
    for model in MODELS
    for facts in DATASETS
    if model.facts.needed_of(facts) is None
    and (facts.name != LARGE or model.facts.name.startswith(("res", "inc")))
]


@pytest.fixture(autouse=True, scope="module")
def _tensorflow() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what libraries say while they are imported
        registry.strategy("single").prepare(JOB, 1)
    yield
    import keras

    keras.backend.clear_session()


@pytest.mark.parametrize(("model", "dataset"), TAKEN, ids=lambda value: named(value))
def test_a_model_is_as_large_as_it_says_and_gives_one_logit_a_class(
    model: Architecture, dataset: DatasetFacts
) -> None:
    import numpy as np

    shape = dataset.example_shape
    built = model.build(shape, 10)
    size = model.describe(shape, 10)
    weights = built.trainable_variables
    # The others that are no floats are generators of random numbers, which nothing here draws from.
    others = [v for v in built.non_trainable_variables if v.dtype == "float32"]
    assert sum(math.prod(v.shape) for v in weights) == size.parameter_count
    assert sum(math.prod(v.shape) * v.value.dtype.size for v in weights) == size.gradient_bytes
    assert sum(math.prod(v.shape) for v in others) == size.statistics_count
    logits = built(np.zeros((2, *shape), "int32" if len(shape) == 1 else "float32"))
    positions = shape if dataset.kind is ExampleKind.TOKENS else ()
    assert logits.shape == (2, *positions, model.facts.vocabulary_size or 10)
    assert not np.allclose(np.sum(np.exp(logits), axis=-1), 1.0)  # no softmax at the end


@pytest.mark.parametrize("model", MODELS, ids=lambda value: named(value))
def test_a_model_computes_what_it_says(model: Architecture) -> None:
    """Against the products in TensorFlow's graph, without what is added to them."""
    import tensorflow as tf

    dataset = next(d for d in reversed(DATASETS) if model.facts.needed_of(d) is None)
    shape = dataset.example_shape
    built = model.build(shape, 10)
    forward = tf.function(lambda x: built(x, training=False), autograph=False)
    dtype = tf.int32 if dataset.kind is ExampleKind.TOKENS else tf.float32
    graph = forward.get_concrete_function(tf.TensorSpec((1, *shape), dtype)).graph
    expected = model.describe(shape, 10).forward_flop_per_example
    assert multiplied(graph, round_count=shape[0]) == pytest.approx(expected, rel=0.01)


def multiplied(graph: Any, *, round_count: int) -> int:
    """Return the flop of all products that the outputs of a graph need; loops go so many rounds."""
    total = 0
    needed = [tensor.op for tensor in graph.outputs]
    seen = set()
    while needed:
        operation = needed.pop()
        if operation.name in seen:
            continue
        seen.add(operation.name)
        needed += [tensor.op for tensor in operation.inputs]
        shapes = [tuple(tensor.shape) for tensor in operation.inputs]
        if operation.type == "Conv2D":
            inner = math.prod(shapes[1][:-1])
        elif operation.type == "Einsum":
            inputs, made = operation.get_attr("equation").decode().split("->")
            letters = zip(inputs.replace(",", ""), (*shapes[0], *shapes[1]), strict=True)
            inner = math.prod({name: size for name, size in letters if name not in made}.values())
        elif operation.type in ("MatMul", "BatchMatMulV2"):
            transposed = "transpose_a" if operation.type == "MatMul" else "adj_x"
            inner = shapes[0][-2 if operation.get_attr(transposed) else -1]
        elif operation.type == "While":
            body = graph._get_function(operation.get_attr("body").name).graph
            total += round_count * multiplied(body, round_count=round_count)
            continue
        else:
            continue
        total += 2 * inner * math.prod(operation.outputs[0].shape)
    return total


def named(value: Architecture | DatasetFacts) -> str:
    return value.facts.name if isinstance(value, Architecture) else value.name


class Remembered:
    """A model that keeps what it has built."""

    def __init__(self, model: Architecture) -> None:
        self.facts = model.facts
        self.describe = model.describe
        self._model = model

    def build(self, example_shape: tuple[int, ...], class_count: int) -> Any:
        self.built = self._model.build(example_shape, class_count)
        return self.built


def test_hidden_tokens_are_restored_and_others_count_for_nothing() -> None:
    import numpy as np

    lay_out = partial(bert.lay_out, width=32, head_count=2, block_count=1)
    model = Remembered(Architecture(facts=bert.BERT_BASE.facts, lay_out=lay_out))
    entry = registry.dataset("synthetic_tokens")
    data = with_hidden_tokens(entry.load(()), entry.facts)
    engine: Any = registry.strategy("single").build(
        RankContext(
            job=dataclasses.replace(JOB, model="bert_base", dataset="synthetic_tokens"),
            rank=0,
            role="worker",
            go=GoLine(cluster={"worker": ("127.0.0.1:1",)}, task_index=0),
            model=model,
            dataset=entry.facts,
            data=data,
            peer_timeout_s=10.0,
        )
    )
    batch = np.arange(16, dtype=np.int32)
    losses = [engine.step(batch, examples_count=16) / 16 for _ in range(12)]
    assert losses[0] == pytest.approx(math.log(bert.VOCABULARY_SIZE), rel=0.1)
    assert losses[-1] < losses[0] - 0.2
    # The mean over the tokens that are predicted, of each sequence and then of all.
    logits = np.asarray(model.built(data.train.inputs[:16]), np.float64)
    labels = data.train.labels[:16]
    chances = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    rows, columns = np.nonzero(labels >= 0)
    expected = -np.log(chances[rows, columns, labels[rows, columns]]).mean()
    assert engine.step(batch, examples_count=16) / 16 == pytest.approx(expected, rel=1e-4)


def test_resnet50_is_that_of_keras() -> None:
    import keras

    published = keras.applications.ResNet50(weights=None, classifier_activation=None)
    size = registry.model("resnet50").describe((224, 224, 3), 1000)
    assert size is not None
    assert size.parameter_count + size.statistics_count == published.count_params() == 25_636_712
    assert sum(math.prod(v.shape) for v in published.trainable_variables) == size.parameter_count


def test_a_rank_takes_what_its_model_needs_at_least_and_not_thrice_as_much(tmp_path: Path) -> None:
    """Peaks of several models and batches were 1.7 to 2.6 times the bound; see docs/models.md."""
    job = dataclasses.replace(
        JOB, model="resnet18", global_batch_size=64, steps=2, warmup_step_count=1
    )
    size = registry.model_size(job.model, job.dataset)
    assert size is not None
    bound = least_memory_bytes(job, size, registry.dataset(job.dataset).facts)
    with gang(job, tmp_path) as trainers:
        (result,) = results(trainers)
    assert trainers[0].seen(Started)[0].parameter_count == size.parameter_count
    # The kernel counts as a process's own peak what the one that started it had.
    inherited = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    assert bound < result.peak_resident_bytes < max(3 * bound, 1.05 * inherited)
