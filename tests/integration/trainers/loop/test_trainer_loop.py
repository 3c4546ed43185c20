"""The loop on a real engine inside this process: what would take a whole trainer too long to show.

TensorFlow is imported once for all of them, on one rank.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from farm import registry
from farm.configuration.spec import JobSpec
from farm.messages.trainer_lines import (
    Assignment,
    FailureKind,
    GoLine,
    Progress,
    Started,
    StepKind,
    Steps,
    TrainerEvent,
    TrainerResult,
    read_event,
)
from farm.trainers.contracts import Engine, RankContext
from farm.trainers.failures import RankFailed, failure_of
from farm.trainers.processes.process import EventWriter

pytestmark = pytest.mark.tensorflow

JOB = JobSpec(
    model="mlp",
    dataset="digits",
    strategy="single",
    world_size=1,
    global_batch_size=256,
    steps=6,
    warmup_step_count=3,
)


@pytest.fixture(scope="module", autouse=True)
def _tensorflow() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what libraries say while they are imported
        registry.strategy("single").prepare(JOB, 1)
    yield
    import keras

    keras.backend.clear_session()


def rank_context(job: JobSpec) -> RankContext:
    dataset = registry.dataset(job.dataset)
    return RankContext(
        job=job,
        rank=0,
        role="worker",
        go=GoLine(cluster={"worker": ("127.0.0.1:1",)}, task_index=0),
        model=registry.model(job.model),
        dataset=dataset.facts,
        data=dataset.load(()),
        peer_timeout_s=10.0,
    )


def build(job: JobSpec) -> Engine:
    return registry.strategy(job.strategy).build(rank_context(job))


def train(job: JobSpec, engine: Engine, folder: Path) -> tuple[TrainerResult, list[TrainerEvent]]:
    from farm.trainers.loop.training import Training

    path = folder / "events"
    with path.open("wb") as file:
        training = Training(
            Assignment(job=job, rank=0, cpus=(0,)),
            engine,
            line=EventWriter(file.fileno()),
            examples_count=1437,
            connect_s=0.0,
        )
        result = training.run()
    return result, [read_event(line) for line in path.read_text().splitlines()]


def test_the_warm_up_leaves_no_trace_in_a_training_by_epochs(tmp_path: Path) -> None:
    epochs = replace(JOB, steps=None, epochs=2)
    warm, _ = train(epochs, build(epochs), tmp_path)
    cold_job = replace(epochs, warmup_step_count=0)
    cold, events = train(cold_job, build(cold_job), tmp_path)
    for key in ("weights_sum", "weights_square_sum", "val_loss"):
        assert warm.details[key] == pytest.approx(cold.details[key], rel=1e-6)
    assert StepKind.WARMUP not in {e.kind for e in events if isinstance(e, Steps)}


def test_the_profiled_steps_do_not_count_and_come_after_the_result_is_known(
    tmp_path: Path,
) -> None:
    engine = build(JOB)
    result, events = train(JOB, engine, tmp_path)
    assert result.timed_step_count == 6
    assert result.peak_flop_per_s is not None
    assert engine.weight_sums().total != result.details["weights_sum"]
    kinds = [e.kind for e in events if isinstance(e, Steps)]
    assert kinds[-1] is StepKind.PROFILED
    assert result.profile is not None
    assert result.profile.step_count == 6


def test_started_comes_before_every_other_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("farm.trainers.loop.recorder.SEND_INTERVAL_S", 0.0)
    _, events = train(JOB, build(JOB), tmp_path)
    assert [type(e) for e in events[:3]] == [Started, Steps, Progress]


def test_the_seed_decides_the_weights(tmp_path: Path) -> None:
    first, _ = train(JOB, build(JOB), tmp_path)
    again, _ = train(JOB, build(JOB), tmp_path)
    other_job = replace(JOB, seed=1)
    other, _ = train(other_job, build(other_job), tmp_path)
    assert again.details["weights_sum"] == pytest.approx(first.details["weights_sum"], rel=1e-6)
    assert other.details["weights_sum"] != pytest.approx(first.details["weights_sum"], rel=1e-3)


def test_a_loss_that_is_not_finite_is_a_failure_of_its_own_kind(tmp_path: Path) -> None:
    engine = build(JOB)
    state = engine.save()
    assert isinstance(state, list)
    engine.restore([array + float("inf") if array.ndim else array for array in state])
    with pytest.raises(RankFailed) as caught:
        train(JOB, engine, tmp_path)
    assert caught.value.kind is FailureKind.NOT_A_NUMBER
    assert "step 0" in str(caught.value)


def test_a_loss_that_grows_out_of_all_proportion_is_a_failure_of_its_own_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("farm.trainers.tensorflow.engine.LEARNING_RATE", 1e4)
    with pytest.raises(RankFailed) as caught:
        train(replace(JOB, steps=1000), build(JOB), tmp_path)
    assert caught.value.kind is FailureKind.DIVERGED
    match = re.fullmatch(
        r"train_loss rose from (\S+) to (\S+) by step (\d+): the training diverges",
        str(caught.value),
    )
    assert match is not None
    assert float(match[1]) == pytest.approx(math.log(10), rel=0.1)
    assert float(match[2]) > 1000 * float(match[1])
    assert 10 <= int(match[3]) < 40


def test_the_errors_of_tensorflow_are_told_apart() -> None:
    import tensorflow as tf

    # Constructed, since TensorFlow waits ten seconds for memory before it gives up.
    exhausted = tf.errors.ResourceExhaustedError(None, None, "out of memory")
    assert failure_of(exhausted, world_size=1).kind is FailureKind.OUT_OF_MEMORY
    with pytest.raises(tf.errors.InvalidArgumentError) as wrong:
        tf.reshape(tf.zeros(3), (2, 2))
    assert failure_of(wrong.value, world_size=2).kind is FailureKind.TRAINER_RAISED


def test_a_rank_without_examples_computes_and_changes_nothing() -> None:
    import numpy as np

    # A convolution raises on an empty batch, so that the peers would lose this rank.
    engine = build(replace(JOB, model="small_cnn"))
    before = engine.weight_sums()
    assert engine.step(np.empty(0, np.int32), examples_count=1) == 0.0
    assert engine.weight_sums() == before


def test_the_small_cnn_has_its_published_parameter_count_before_the_head() -> None:
    layers = registry.model("small_cnn").build((32, 32, 3), 10).layers
    assert sum(layer.count_params() for layer in layers[:-2]) == 56_320


def test_the_shallow_cnn_has_a_vector_of_800_between_its_parts() -> None:
    model = registry.model("shallow_cnn").build((28, 28, 1), 10)
    assert model.layers[-3].output.shape == (None, 800)
