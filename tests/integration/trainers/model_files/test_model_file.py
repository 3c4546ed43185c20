"""A user's own model in a real trainer, and what a file may get wrong."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from farm import registry
from farm.configuration.catalogue import ModelFacts
from farm.configuration.spec import JobSpec
from farm.messages.trainer_lines import (
    Assignment,
    Failure,
    FailureKind,
    GoLine,
    Ready,
    Started,
    TrainerResult,
    UserCode,
)
from farm.trainers.contracts import RankContext
from farm.trainers.failures import RankFailed
from farm.trainers.model_files.model_file import ModelFile
from farm.trainers.processes.process import EXIT_FAILED
from farm.trainers.tensorflow.sessions.scheme import RankScheme, Scheme
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


# Of the system's entropy, which no seed of the job's governs.
UNSEEDED = SOURCE.replace("import keras\n", "import keras\nimport numpy as np\n").replace(
    "    return keras.Sequential(\n        [layers.Flatten(), ",
    """    frozen = layers.Dense(5, trainable=False)
    frozen.build((None, 64))
    frozen.set_weights([{}.normal(size=(64, 5)), np.zeros(5)])
    return keras.Sequential(
        [layers.Flatten(), frozen, """,
)


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("generator", "are_alike"), [("np.random.default_rng()", False), ("np.random", True)]
)
def test_ranks_tell_what_their_weights_are_before_the_training(
    tmp_path: Path, generator: str, are_alike: bool
) -> None:
    file = written(tmp_path, UNSEEDED.format(generator))
    job = replace(JOB, strategy="mwms_ring", world_size=2)
    cpus = (min(os.sched_getaffinity(0)),)
    with (
        TrainerProcess(tmp_path / "log0", is_forked=True) as first,
        TrainerProcess(tmp_path / "log1", is_forked=True) as second,
    ):
        for rank, trainer in enumerate((first, second)):
            trainer.write(Assignment(job=job, rank=rank, cpus=cpus, model_file=str(file)))
        for trainer in (first, second):
            trainer.wait_for(Ready)
        go([first, second])
        one, other = (t.wait_for(Started).weights_checksum for t in (first, second))
    assert one is not None
    assert other is not None
    assert (abs(one - other) < 1e-8 * one) is are_alike


def test_an_agent_that_does_not_have_it_says_so_at_once(tmp_path: Path) -> None:
    with TrainerProcess(tmp_path / "log") as trainer:
        trainer.write(Assignment(job=JOB, rank=0, cpus=(min(os.sched_getaffinity(0)),)))
        failure = trainer.wait_for(Failure)
        assert failure.kind is FailureKind.MODEL_MISSING
        assert "AGENT_MODELS" in failure.message
        assert trainer.exit_code() == EXIT_FAILED


ARGUMENTS = (
    """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--units", type=int, required=True)
args = parser.parse_args()
"""
    + SOURCE
)


@pytest.mark.tensorflow
def test_a_file_that_ends_the_process_is_its_own_failure_and_not_its_peers(tmp_path: Path) -> None:
    """In order: at its import, and by os._exit, which its agent has to tell."""
    leaving = 'import os\nprint("{", flush=True)\nos.write(1, b"[[")\nos._exit(7)\n'
    for number, source in enumerate((ARGUMENTS, leaving)):
        file = written(tmp_path, source)
        with TrainerProcess(tmp_path / f"log{number}", is_forked=True) as trainer:
            cpus = (min(os.sched_getaffinity(0)),)
            trainer.write(Assignment(job=JOB, rank=0, cpus=cpus, model_file=str(file)))
            trainer.wait_for(Ready)
            go([trainer])
            running = trainer.wait_for(UserCode)
            assert running == UserCode(name="model file:mine.py", is_running=True)
            if source is leaving:
                assert trainer.exit_code() == 7
                assert trainer.arrived() == []
                assert "{[[" in trainer.log.read_text().replace("\n", "")
                continue
            failure = trainer.wait_for(Failure)
            assert trainer.exit_code() == EXIT_FAILED
            assert failure.kind is FailureKind.TRAINER_RAISED
            assert "raised SystemExit: 2" in failure.message
            assert "required: --units" in failure.message
            assert "parser.parse_args()" in trainer.log.read_text()  # the traceback's line


# Imports nothing heavy before `build`, since each process that it starts imports it again.
STARTING = """
import multiprocessing
import os
import signal
import sys

def double(number):
    return 2 * number

def build(example_shape, class_count):
    {}
    import keras
    from keras import layers
    return keras.Sequential([layers.Flatten(), layers.Dense(class_count)])
"""
POOL = """
    with multiprocessing.get_context("{}").Pool(1) as pool:
        assert pool.map(double, [1, 2]) == [2, 4]
"""


def run_of(source: str, folder: Path) -> tuple[TrainerResult | Failure, int]:
    """Return what a trainer says of a model's file, in the end, and its exit code."""
    file = written(folder, source)
    with TrainerProcess(folder / "log", is_forked=True) as trainer:
        cpus = (min(os.sched_getaffinity(0)),)
        trainer.write(Assignment(job=JOB, rank=0, cpus=cpus, model_file=str(file)))
        trainer.wait_for(Ready)
        go([trainer])
        outcome = trainer.wait_for(object)
        while not isinstance(outcome, TrainerResult | Failure):
            outcome = trainer.wait_for(object)
        return outcome, trainer.exit_code()


@pytest.mark.tensorflow
@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_a_file_may_start_processes_while_it_builds(tmp_path: Path, method: str) -> None:
    outcome, code = run_of(STARTING.format(POOL.format(method)), tmp_path)
    assert isinstance(outcome, TrainerResult)
    assert code == 0


@pytest.mark.tensorflow
def test_a_file_that_spawns_while_it_is_imported_is_told_to_do_so_in_build(tmp_path: Path) -> None:
    outcome, _ = run_of(STARTING.format("") + "if True:" + POOL.format("spawn"), tmp_path)
    assert isinstance(outcome, Failure)
    assert outcome.kind is FailureKind.TRAINER_RAISED
    assert "expected processes to be started in build" in outcome.message


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
        ("os.killpg(0, signal.SIGTERM)", "SIGTERM"),
        ("os.kill(os.getpid(), signal.SIGINT)", "KeyboardInterrupt"),
        ("input('name? ')", "EOFError: EOF when reading a line"),
    ],
)
def test_a_file_that_ends_its_process_or_asks_for_input_says_so(
    tmp_path: Path, line: str, name: str
) -> None:
    outcome, _ = run_of(STARTING.format(line), tmp_path)
    assert isinstance(outcome, Failure)
    assert outcome.kind is FailureKind.TRAINER_RAISED
    assert outcome.message.startswith("model file:mine.py: ")
    assert name in outcome.message


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    "line",
    [
        "os.fork() or sys.exit(5); assert os.waitstatus_to_exitcode(os.wait()[1]) == 5",
        "os.fork() or int('no'); assert os.waitstatus_to_exitcode(os.wait()[1]) == 1",
        "os.fork() and os.wait()",
        "signal.signal(signal.SIGTERM, lambda *_: None); os.kill(os.getpid(), signal.SIGTERM)",
    ],
)
def test_only_the_trainer_itself_reports_and_trains(tmp_path: Path, line: str) -> None:
    outcome, code = run_of(STARTING.format(line), tmp_path)
    assert isinstance(outcome, TrainerResult)
    assert code == 0


@pytest.fixture(scope="module")
def _tensorflow() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what libraries say while they are imported
        registry.strategy("single").prepare(replace(JOB, model="mlp"), 1)
    yield
    import keras

    keras.backend.clear_session()


HEAD = """
import sys
import keras
import tensorflow as tf
from keras import layers, ops
"""
# What a model's class gets: `flatten`, `dense` and its own `call`.
CLASS = """
class Own(keras.Model):
    def __init__(self, class_count):
        super().__init__()
        self.flatten, self.dense = layers.Flatten(), layers.Dense(class_count)

    def call(self, images{more}):
        y = self.dense(self.flatten(images))
        return {value}

def build(s, c): return Own(c)
"""


def of_layers(*written: str) -> str:
    """A file of a Sequential model: flattened images, then these layers. c: class count."""
    layers = ", ".join(("layers.Input(s)", "layers.Flatten()", *written))
    return f"{HEAD}{SCALED}\ndef build(s, c): return keras.Sequential([{layers}])\n"


def of_class(value: str, more: str = "") -> str:
    return HEAD + CLASS.format(value=value, more=more)


def built(source: str) -> Any:
    facts = ModelFacts(name="file:mine.py", summary="")
    return ModelFile(facts=facts, source=source.encode()).build((8, 8, 1), 10)


def refusal(source: str) -> str:
    with pytest.raises(RankFailed) as failed:
        built(source)
    assert failed.value.kind is FailureKind.TRAINER_RAISED
    message = str(failed.value)
    assert message.startswith("model file:mine.py: ")
    assert message.isprintable()
    return message


DENSE = "layers.Dense(c)"
FUNCTIONAL = (
    HEAD
    + "def build(s, c):\n    i = layers.Input(s)\n    y = layers.Dense(c)(layers.Flatten()(i))\n"
)
# What leaves probabilities what they are, but for one factor and one summand.
AFTER_SOFTMAX = (
    ("Scaled()",),
    ("Scaled(-3.0)", "layers.Dropout(0.5)"),
    ("Scaled()", "layers.Rescaling(-7.0, offset=0.2)"),
    ("layers.Rescaling(2.0, offset=-1.0)",),
    ("layers.Lambda(lambda x: 5 - x)", "layers.Identity()"),
    ("layers.Reshape((10,))", "layers.Activation('linear')", "layers.Dropout(0.2)"),
)
SCALED = """
class Scaled(layers.Layer):
    def __init__(self, start=1.0):
        super().__init__()
        self.start = start

    def build(self, shape):
        self.scale = self.add_weight(shape=(), initializer=keras.initializers.Constant(self.start))

    def call(self, values):
        return self.scale * values
"""
COSINES = """
class Cosines(layers.Layer):
    def build(self, shape):
        self.kernel = self.add_weight(shape=(10, shape[-1]), initializer="glorot_uniform")

    def call(self, values):
        kernel = ops.normalize(self.kernel, axis=-1)
        return ops.matmul(ops.normalize(values, axis=-1), ops.transpose(kernel))

class Scaled"""
INT8 = """self.small = self.add_weight(shape=(2,), dtype="int8", trainable=False)
        self.scale ="""
# What no weights take out of a range.
LIMITED = (
    (
        ("layers.Dense(c, 'sigmoid')", "layers.Rescaling(2.0, offset=-1.0)"),
        "expected logits, got outputs from -1 to 1 whatever the weights",
    ),
    (("layers.Dense(c, 'sigmoid')", "layers.Rescaling(100.0)"), "got outputs from 0 to 100"),
    (("layers.Dense(c, 'tanh', dtype='mixed_bfloat16')",), "got outputs from -1 to 1"),
    (("layers.Dense(c, 'tanh')", "layers.BatchNormalization()"), "got outputs from -1 to 1"),
    (("layers.Dense(c)", "layers.ReLU(6.0)"), "got outputs from 0 to 6"),
)
# float16 between layers of float32.
HALF = "layers.Lambda(lambda x: tf.cast(tf.cast(x, 'float16'), 'float32'))"
SOFTMAX = "expected logits, got a softmax as its last layer"
SIGMOID = "expected logits, got a sigmoid as its last layer"
TORCH = "import torch\ndef build(s, c): return torch.nn.Linear(64, c)"


@pytest.mark.tensorflow
@pytest.mark.usefixtures("_tensorflow")
@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", "expected a function build(example_shape, class_count), got none"),
        ("import nowhere_at_all", "raised ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("def build(s, c): return None", "expected a Keras model of build, got NoneType"),
        (TORCH, "got torch.nn.modules.linear.Linear: write it with keras.layers"),
        (f"{HEAD}def build(s, c): return layers.Dense(c)", "put it into a keras.Sequential"),
        (
            f"{HEAD}def build(s, c): return keras.Model",
            "the class Model: return one of its objects",
        ),
        # The output's shape.
        (of_layers("layers.Dense(c + 1)"), "an output of nx10, one logit a class, got nx11"),
        (SOURCE.replace("layers.Flatten(), ", ""), "got nx8x8x10"),
        (of_class("ops.sum(y)"), "one logit a class, got one number"),
        (of_class("{'a': y, 'b': y}"), "got a dict of a, b: return the logits alone"),
        (of_class("(y, y)"), "got a tuple of 2: return the logits alone"),
        (FUNCTIONAL + "    return keras.Model(i, [y])", "got a list of 1: return the logits alone"),
        (
            of_class("(y, y) if training else y", ", training=False"),
            "of nx10, one logit a class, got a tuple of 2 in training: return the logits alone",
        ),
        (of_class("None if training else y", ", training=False"), "got NoneType in training"),
        # Images of another shape.
        (
            SOURCE.replace("layers.Flatten()", "layers.Conv1D(1, 99)"),
            "does not take images of 8x8x1: raised ValueError",
        ),
        (
            f"{HEAD}def build(s, c): return keras.Sequential([layers.Input((9, 9, 3)), {DENSE}])",
            "expected shape=(None, 9, 9, 3), found shape=(None, 8, 8",
        ),
        (
            FUNCTIONAL + "    return keras.Model([i, layers.Input(s)], y)",
            "does not take images of 8x8x1: raised ValueError",
        ),
        (
            of_layers("layers.Reshape((8, 8))", "layers.LSTM(4, stateful=True)", DENSE),
            "the batch size must be static",
        ),
        # Probabilities, wherever they come from.
        (of_layers("layers.Dense(c, activation='softmax')"), SOFTMAX),
        (of_layers(f"keras.Sequential([{DENSE}, layers.Softmax()])"), SOFTMAX),
        (of_layers(DENSE, "layers.Activation('softmax')", "layers.Dropout(0.5)"), SOFTMAX),
        (of_layers(DENSE, "layers.Lambda(lambda x: tf.nn.softmax(3 * x))"), SOFTMAX),
        (of_layers(DENSE, "layers.Softmax()", "layers.Rescaling(100.0)"), SOFTMAX),
        (FUNCTIONAL + "    return keras.Model(i, keras.Model(i, ops.softmax(y))(i))", SOFTMAX),
        *((of_layers(DENSE, "layers.Softmax()", *after), SOFTMAX) for after in AFTER_SOFTMAX),
        (of_class("ops.softmax(y)"), SOFTMAX),
        (of_class("y if training else ops.softmax(y)", ", training=False"), SOFTMAX),
        (of_layers("layers.Dense(c, activation='softmax', dtype='mixed_bfloat16')"), SOFTMAX),
        (of_layers("layers.Dense(c, activation='sigmoid')"), SIGMOID),
        (of_layers(DENSE, "layers.Softmax()", "layers.Rescaling(1.0, offset=-0.1)"), SOFTMAX),
        (of_layers(DENSE, "layers.Softmax()", "layers.BatchNormalization()"), SOFTMAX),
        (of_layers("layers.Dense(c, 'sigmoid')", "layers.BatchNormalization()"), SIGMOID),
        *((of_layers(*limited), message) for limited, message in LIMITED),
        (
            of_layers(DENSE, "layers.LayerNormalization(scale=False, center=False)"),
            "whatever the weights",
        ),
        (
            of_layers("layers.Dense(16)", "Cosines()").replace("class Scaled", COSINES),
            "got outputs",
        ),
        (
            of_class("y + self.more").replace(
                "        self.flatten", "        self.more = MORE\n        self.flatten"
            )
            + "MORE = tf.Variable(tf.zeros(10))\n",
            "got a tf.Variable (own",
        ),
        # Numbers that are not of float32, or no numbers.
        (
            of_layers(DENSE, "Scaled()").replace("self.scale =", INT8),
            "float32, got int8 (sequential",
        ),
        (of_layers("layers.Dense(c, dtype='float16')"), "weights of float32, got float16"),
        (of_layers("layers.Dense(c, dtype='float64')"), "weights of float32, got float64"),
        (of_layers("layers.Dense(c, dtype='mixed_float16')"), "bfloat16, got float16"),
        (
            of_layers("layers.Dense(4, dtype='mixed_float16')", DENSE),
            "whose gradients vanish without a scaled loss",
        ),
        (of_class("ops.cast(y, 'float16')"), "expected logits of float32 or bfloat16, got float16"),
        (of_layers("layers.Dense(4)", HALF, DENSE), "got float16, in which gradients vanish"),
        (of_class("ops.cast(y, 'int32')"), "expected logits of a floating type, got int32"),
        (
            of_layers(
                "layers.Dense(c, bias_initializer=keras.initializers.Constant(float('nan')))"
            ),
            "expected finite weights before the training, got nan or inf",
        ),
        (of_class("ops.log(-ops.abs(y))"), "expected finite logits before the training"),
        # Which optimizers of PyTorch and of servers would leave out in silence.
        (
            of_layers("layers.Dense(c, kernel_constraint='max_norm')"),
            "expected weights without a constraint, got MaxNorm",
        ),
        # Nothing to train, in all or in part.
        (of_layers("layers.Lambda(lambda x: x[:, :c])"), "expected weights to train, got none"),
        (
            FUNCTIONAL + "    m = keras.Model(i, y)\n    m.trainable = False\n    return m",
            "expected weights to train, got 2 frozen ones (trainable = False)",
        ),
        (
            of_layers("layers.Dense(5)", "layers.Lambda(tf.stop_gradient)", DENSE),
            "expected a gradient for every weight, got none for",
        ),
        (of_layers(DENSE, "layers.Rescaling(0.0)"), "a gradient of 0 for every weight"),
        (
            of_layers("layers.Dense(c, kernel_regularizer='l2')", "layers.Rescaling(0.0)"),
            "there is nothing to train",
        ),
        (of_layers(DENSE, "layers.Lambda(lambda x: 0 * x + 1)"), "a gradient of 0 for every"),
        # The model's own code ends the process, or raises, when it is called.
        (of_class("sys.exit(3)"), "raised SystemExit: 3 (line 14)"),
        (of_class("y if not training else int('x')", ", training=False"), "raised ValueError: "),
    ],
)
def test_what_a_file_gets_wrong_is_one_line(source: str, message: str) -> None:
    assert message in refusal(source)


# `import` takes what is in sys.modules.
REPLACING = f"""
{HEAD}
class Lazy:
    def build(self, s, c):
        return keras.Sequential([layers.Input(s), layers.Flatten(), layers.Dense(c)])

sys.modules[__name__] = Lazy()
"""


@pytest.mark.tensorflow
@pytest.mark.usefixtures("_tensorflow")
@pytest.mark.parametrize(
    "source",
    [
        of_layers(DENSE, "layers.Activation('log_softmax')"),  # which a softmax leaves as it is
        of_layers("layers.Dense(c, kernel_initializer='zeros')"),
        of_layers("layers.Dense(c, 'relu', kernel_initializer='zeros')"),
        of_layers("layers.Dense(c, kernel_initializer='zeros', bias_initializer='ones')"),
        of_layers("layers.BatchNormalization()", "layers.Dropout(0.3)", DENSE),
        of_layers("layers.Dense(c, dtype='mixed_bfloat16', kernel_regularizer='l2')"),
        # Limits within a model, and of logits, are no probabilities.
        of_layers("layers.Dense(16, 'tanh')", "layers.BatchNormalization()", DENSE),
        of_layers("layers.Dense(16)", "layers.ReLU(6.0)", "layers.Dense(c, 'relu')"),
        of_layers(DENSE, "layers.BatchNormalization()"),
        of_layers(DENSE, "layers.Lambda(lambda y: 30 * tf.tanh(y / 30))"),
        of_layers(DENSE, "layers.UnitNormalization()", "layers.Rescaling(30.0)"),
        REPLACING,
        of_layers("layers.Reshape((8, 8))", "layers.LSTM(4)", DENSE),
        of_layers(DENSE, "Scaled()"),
        of_layers(DENSE, "layers.LayerNormalization()"),
        of_layers(DENSE, "layers.BatchNormalization(scale=False, center=False)"),
        of_layers("layers.Dense(16)", "Cosines()", "Scaled(16.0)").replace("class Scaled", COSINES),
        of_layers("layers.Normalization(axis=-1)", DENSE),
        of_layers(DENSE, "layers.Lambda(lambda y: y - tf.reduce_mean(y, 1, keepdims=True))"),
        of_layers("layers.Dense(64, 'relu')", "layers.Softmax()", DENSE),
        of_layers(
            "layers.Reshape((8, 8, 1))",
            "layers.Conv2D(8, 3, activation='relu')",
            "layers.Conv2D(8, 3, activation='relu')",
            "layers.GlobalAveragePooling2D()",
            "layers.Dense(c, bias_initializer='ones')",
        ),
        of_class("y"),
        f"{FUNCTIONAL}    return keras.Model(i, y)",
    ],
)
def test_what_gives_logits_is_taken_and_not_changed_by_the_look_at_it(source: str) -> None:
    import keras

    keras.utils.set_random_seed(3)
    model = built(source)
    state = [np.asarray(v) for v in model.variables]
    keras.utils.set_random_seed(3)
    facts = ModelFacts(name="file:mine.py", summary="")
    fresh = ModelFile(facts=facts, source=source.encode()).call_build((8, 8, 1), 10)
    fresh(keras.Input((8, 8, 1)))
    for mine, theirs in zip(state, fresh.variables, strict=True):
        assert np.array_equal(mine, np.asarray(theirs))


@pytest.mark.tensorflow
@pytest.mark.usefixtures("_tensorflow")
def test_a_file_may_clear_the_session_under_a_strategy() -> None:
    import tensorflow as tf

    strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
    with strategy.scope():
        model = built(SOURCE.replace("    return", "    keras.backend.clear_session()\n    return"))
        assert tf.distribute.get_strategy() is strategy
    assert all(strategy.extended.variable_created_in_scope(v.value) for v in model.variables)


@pytest.mark.tensorflow
@pytest.mark.usefixtures("_tensorflow")
@pytest.mark.parametrize(
    ("world_size", "kind"), [(1, FailureKind.TRAINER_RAISED), (2, FailureKind.PEER_LOST)]
)
def test_a_peer_that_is_lost_while_a_model_is_built_is_no_failure_of_its_file(
    world_size: int, kind: FailureKind
) -> None:
    source = f"{HEAD}def build(s, c): raise tf.errors.UnavailableError(None, None, 'no peer')"
    facts = ModelFacts(name="file:mine.py", summary="")
    model = ModelFile(facts=facts, source=source.encode(), world_size=world_size)
    with pytest.raises(RankFailed) as failed:
        model.build((8, 8, 1), 10)
    assert failed.value.kind is kind
    own = "class UnavailableError(Exception): ...\ndef build(s, c): raise UnavailableError"
    with pytest.raises(RankFailed) as failed:
        dataclasses.replace(model, source=own.encode()).build((8, 8, 1), 10)
    assert failed.value.kind is FailureKind.TRAINER_RAISED


def plan_alone() -> RankScheme:
    device = "/device:CPU:0"
    return RankScheme(
        scheme=Scheme.CENTRAL_REDUCE,
        rank=0,
        world_size=1,
        weight_host_devices=(device,),
        own_device=device,
        homes=(0, 0),
        is_forward=False,
    )


@pytest.mark.tensorflow
@pytest.mark.usefixtures("_tensorflow")
def test_a_model_that_knows_no_shape_of_its_input_goes_into_a_graph() -> None:
    from farm.trainers.tensorflow.sessions.training_graph import TrainingGraph

    images = registry.dataset("digits").load(()).train
    for more in ("", ", training=False"):
        model = built(of_class("y", more))
        weights = [np.asarray(v) for v in model.trainable_variables]
        graph = TrainingGraph(plan_alone(), model, train=images, weights=weights, others=[])
        assert tuple(graph.inputs.shape) == (None, 8, 8, 1)


WITH_PENALTIES = of_layers(
    "layers.Dense(c, use_bias=False, kernel_regularizer=keras.regularizers.L2(0.25))"
)


def expected_step(weights: Any, images: Any, labels: Any, *, batch: int) -> tuple[Any, float]:
    """The weights after a first step at 0.02 on softmax(xW) with 0.25 |W|^2, and the loss sum."""
    x = images.reshape(len(images), -1) / 255.0
    logits = x @ weights
    chances = np.exp(logits - logits.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    errors = chances - np.eye(10)[labels]
    gradient = x.T @ errors / batch + 0.5 * weights * len(x) / batch
    losses = -np.log(chances[np.arange(len(x)), labels])
    return weights - 0.02 * gradient, losses.sum() + 0.25 * (weights**2).sum() * len(x)


@dataclasses.dataclass
class Noted:
    """A model that knows what it has built last."""

    model: ModelFile
    built: Any = None

    @property
    def facts(self) -> ModelFacts:
        return self.model.facts

    def build(self, example_shape: tuple[int, ...], class_count: int) -> Any:
        self.built = self.model.build(example_shape, class_count)
        return self.built

    def describe(self, example_shape: tuple[int, ...], class_count: int) -> None:
        return None

    def weights(self) -> Any:
        [weights] = self.built.trainable_variables
        return weights.numpy()


@pytest.mark.tensorflow
@pytest.mark.usefixtures("_tensorflow")
def test_regularisers_are_part_of_the_loss_in_the_mean_over_the_global_batch() -> None:
    facts = ModelFacts(name="file:mine.py", summary="")
    model = Noted(ModelFile(facts=facts, source=WITH_PENALTIES.encode()))
    dataset = registry.dataset("digits")
    data = dataset.load(())
    rank_context = RankContext(
        job=JOB,
        rank=0,
        role="worker",
        go=GoLine(cluster={"worker": ("127.0.0.1:1",)}, task_index=0),
        model=model,
        dataset=dataset.facts,
        data=data,
        peer_timeout_s=5.0,
    )
    engine: Any = registry.strategy("single").build(rank_context)
    before = model.weights()
    indices = np.arange(6, dtype=np.int32)
    images, labels = data.train.inputs[:6], data.train.labels[:6]
    # As a rank with 6 examples of 9.
    expected, loss = expected_step(before, images, labels, batch=9)
    assert engine.step(indices, examples_count=9) == pytest.approx(loss, rel=1e-4)
    assert model.weights() == pytest.approx(expected, rel=1e-4, abs=1e-6)

    # A rank of a gang whose gradients go to weight hosts does the same.
    import tensorflow as tf

    from farm.trainers.tensorflow.sessions.training_graph import TrainingGraph

    graph = TrainingGraph(
        dataclasses.replace(plan_alone(), homes=(0,), scheme=Scheme.PS_ASYNC),
        model.build((8, 8, 1), 10),
        train=data.train,
        weights=[before],
        others=[],
    )
    with tf.compat.v1.Session(graph=graph.graph) as session:
        graph.shared.load(session, graph.initial([before], [])[0])
        graph.local.load(session, graph.initial([before], [])[1])
        loss_sum, _, _ = session.run(
            [graph.outputs.loss_sum, graph.outputs.updates_after, graph.done],
            {graph.inputs: images, graph.labels: labels, graph.scale: 1 / 9},
        )
        [after] = graph.weights.read(session)
    assert loss_sum == pytest.approx(loss, rel=1e-4)
    assert after == pytest.approx(expected, rel=1e-4, abs=1e-6)
