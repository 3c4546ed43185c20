"""A user's own model in a real trainer, and what a file may get wrong."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from farm import registry
from farm.core.catalogue import ModelFacts
from farm.core.spec import JobSpec
from farm.core.trainer_lines import Assignment, Failure, FailureKind, Ready, Started, TrainerResult
from farm.trainers.failures import RankFailed
from farm.trainers.models.model_file import ModelFile
from farm.trainers.process import EXIT_FAILED
from farm.trainers.sessions.scheme import Plan, Scheme
from tests.integration.trainer_process import TrainerProcess, go

JOB = JobSpec(
    model="file:mine.py",
    dataset="digits",
    strategy="single",
    world_size=1,
    global_batch_size=64,
    steps=3,
    warmup_step_count=1,
)
SOURCE = """
import keras
from keras import layers

def build(example_shape, class_count):
    return keras.Sequential(
        [layers.Flatten(), layers.Dense(7, activation="relu"), layers.Dense(class_count)]
    )
"""


def written(folder: Path, source: str = SOURCE) -> Path:
    file = folder / "mine.py"
    file.write_text(source)
    file.chmod(0o644)
    return file


@pytest.mark.tensorflow
def test_a_users_own_model_trains_and_its_hash_is_kept(tmp_path: Path) -> None:
    file = written(tmp_path)
    with TrainerProcess(tmp_path / "log") as trainer:
        cpus = (min(os.sched_getaffinity(0)),)
        trainer.write(Assignment(job=JOB, rank=0, cpus=cpus, model_file=str(file)))
        ready = trainer.wait_for(Ready)
        assert ready.model_sha256 == hashlib.sha256(SOURCE.encode()).hexdigest()
        go([trainer])
        assert trainer.wait_for(Started).parameter_count == 65 * 7 + 8 * 10
        result = trainer.wait_for(TrainerResult)
        assert result.val_accuracy_ratio is not None


def test_an_agent_that_does_not_have_it_says_so_at_once(tmp_path: Path) -> None:
    with TrainerProcess(tmp_path / "log") as trainer:
        trainer.write(Assignment(job=JOB, rank=0, cpus=(min(os.sched_getaffinity(0)),)))
        failure = trainer.wait_for(Failure)
        assert failure.kind is FailureKind.MODEL_MISSING
        assert "AGENT_MODELS" in failure.message
        assert trainer.exit_code() == EXIT_FAILED


@pytest.fixture(scope="module")
def _tensorflow() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what libraries say while they are imported
        registry.strategy("single").prepare(replace(JOB, model="mlp"), 1)
    yield
    import keras

    keras.backend.clear_session()


@pytest.mark.tensorflow
@pytest.mark.usefixtures("_tensorflow")
@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", "expected a function build(example_shape, class_count), got none"),
        ("build = 3", "expected a function build(example_shape, class_count), got none"),
        ("def build(:", "raised SyntaxError: invalid syntax"),
        ("import nowhere_at_all", "raised ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("def build(s, c): raise ValueError('two\\nlines')", "raised ValueError: two lines"),
        ("def build(s): ...", "raised TypeError: build() takes 1 positional argument"),
        ("def build(s, c): return None", "expected a Keras model of build, got NoneType"),
        (
            SOURCE.replace("class_count)]", "class_count + 1)]"),
            "expected an output of nx10, one logit a class, got nx11",
        ),
        (SOURCE.replace("layers.Flatten(), ", ""), "got nx8x8x10"),
        (
            SOURCE.replace("class_count)]", "class_count, activation='softmax')]"),
            "expected logits, got a softmax as its last layer",
        ),
        (
            SOURCE.replace("layers.Flatten()", "layers.Conv1D(1, 99)"),
            "does not take images of 8x8x1: ValueError",
        ),
    ],
)
def test_what_a_file_gets_wrong_is_one_line(source: str, message: str) -> None:
    facts = ModelFacts(name="file:mine.py", summary="")
    with pytest.raises(RankFailed) as failed:
        ModelFile(facts=facts, source=source.encode()).build((8, 8, 1), 10)
    assert failed.value.kind is FailureKind.TRAINER_RAISED
    assert str(failed.value).startswith("model file:mine.py: ")
    assert message in str(failed.value)
    assert "\n" not in str(failed.value)


SUBCLASS = """
import keras

class Own(keras.Model):
    def __init__(self, class_count):
        super().__init__()
        self.flatten, self.dense = keras.layers.Flatten(), keras.layers.Dense(class_count)

    def call(self, images, training=False):
        return self.dense(self.flatten(images))

def build(example_shape, class_count):
    return Own(class_count)
"""


@pytest.mark.tensorflow
@pytest.mark.usefixtures("_tensorflow")
def test_a_model_that_knows_no_shape_of_its_input_goes_into_a_graph() -> None:
    from farm.trainers.sessions.training_graph import TrainingGraph

    facts = ModelFacts(name="file:mine.py", summary="")
    model = ModelFile(facts=facts, source=SUBCLASS.encode()).build((8, 8, 1), 10)
    device = "/job:worker/task:0/device:CPU:0"
    plan = Plan(
        scheme=Scheme.CENTRAL_REDUCE,
        rank=0,
        world_size=1,
        keeper_devices=(device,),
        own_device=device,
        homes=(0, 0),
        is_forward=False,
    )
    weights = [np.asarray(v) for v in model.trainable_variables]
    graph = TrainingGraph(plan, model, example_shape=(8, 8, 1), weights=weights, others=[])
    assert tuple(graph.images.shape) == (None, 8, 8, 1)
