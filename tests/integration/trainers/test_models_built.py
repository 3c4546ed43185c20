"""What a model says of itself, against what Keras builds of the same layers."""

from __future__ import annotations

import dataclasses
import math
import resource
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from farm import registry
from farm.configuration.spec import JobSpec
from farm.messages.trainer_lines import Started
from farm.placement.memory import least_memory_bytes
from farm.trainers.models import MODELS
from farm.trainers.models.architecture import Architecture
from tests.integration.trainer_process import gang, results

pytestmark = pytest.mark.tensorflow

JOB = JobSpec(
    model="mlp", dataset="digits", strategy="single", world_size=1, global_batch_size=8, steps=1
)
SMALL = ((8, 8, 1), (28, 28, 1), (32, 32, 3))
TAKEN = [
    (model, shape)
    for model in MODELS
    for shape in SMALL
    if min(shape[:2]) >= model.facts.smallest_side
]
# A test's time and memory do not allow 138 million parameters at 224x224; the layers are the same.
LARGE = [(model, (64, 64, 3)) for model in MODELS if model.facts.name.startswith(("res", "inc"))]

each_model_taken = pytest.mark.parametrize(
    ("model", "shape"),
    [*TAKEN, *LARGE],
    ids=lambda value: value.facts.name if isinstance(value, Architecture) else str(value[0]),
)


@pytest.fixture(autouse=True, scope="module")
def _tensorflow() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what libraries say while they are imported
        registry.strategy("single").prepare(JOB, 1)
    yield
    import keras

    keras.backend.clear_session()


@each_model_taken
def test_a_model_is_as_large_as_it_says_and_gives_one_logit_a_class(
    model: Architecture, shape: tuple[int, int, int]
) -> None:
    import numpy as np

    built = model.build(shape, 10)
    size = model.describe(shape, 10)
    assert sum(math.prod(v.shape) for v in built.trainable_variables) == size.parameter_count
    assert sum(math.prod(v.shape) for v in built.non_trainable_variables) == size.statistics_count
    logits = built(np.zeros((2, *shape)))
    assert logits.shape == (2, 10)
    assert not np.allclose(np.sum(np.exp(logits), axis=1), 1.0)  # no softmax at the end


@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.facts.name)
def test_a_model_computes_what_it_says(model: Architecture) -> None:
    """Against TensorFlow's own count, which has pooling, ReLU and normalisation as well."""
    import tensorflow as tf

    shape = (32, 32, 3)
    built = model.build(shape, 10)
    forward = tf.function(lambda x: built(x, training=False), autograph=False)
    graph = forward.get_concrete_function(tf.TensorSpec((1, *shape), tf.float32)).graph
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        options = tf.compat.v1.profiler.ProfileOptionBuilder.float_operation()
        options["output"] = "none"
        counted = tf.compat.v1.profiler.profile(graph, options=options).total_float_ops
    assert model.describe(shape, 10).forward_flop_per_example == pytest.approx(counted, rel=0.03)


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
