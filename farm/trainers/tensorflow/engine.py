"""One rank of TensorFlow: model, optimizer and examples under a tf.distribute strategy.

The gradient of a rank is the sum over its own examples divided by the global batch size actually
used, so that the sum over ranks is the mean over the global batch however unevenly it is split.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import keras
import numpy as np
import tensorflow as tf

from farm.configuration.axes import spec_values
from farm.configuration.spec import Compilation, OperatorPlacement, TrainingPass
from farm.messages.trainer_lines import Exchange
from farm.trainers.contracts import (
    Evaluation,
    Examples,
    Gang,
    MatrixProduct,
    RankContext,
    WeightSums,
)
from farm.trainers.hyperparameters import LEARNING_RATE, MOMENTUM
from farm.trainers.models.checksum import checksum_of
from farm.trainers.tensorflow.devices import matrix_product, take_device_memory_bytes
from farm.trainers.tensorflow.loader import example_specs, tensorflow_loader
from farm.trainers.tensorflow.loss import Evaluator, loss_sum, model_input
from farm.trainers.tensorflow.profile import collective_times
from farm.trainers.tensorflow.setup import tensorflow_settings

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from farm.trainers.contracts import IndexArray

# Images or tokens, labels and a factor, to the sum of losses and the gradients.
Passes: TypeAlias = Callable[[Any, Any, Any], tuple[Any, list[Any]]]
Step: TypeAlias = Any  # of tf.function


class TensorFlowEngine:
    """Drives a built model; the strategy is connected and owned by the process."""

    def __init__(self, rank_context: RankContext, *, strategy: Any, gang: Gang) -> None:
        self._gang = gang
        self._placement = rank_context.job.placement
        self._is_forward = rank_context.job.training_pass is TrainingPass.FORWARD
        self._global_batch_size = rank_context.job.global_batch_size
        self._update_count = 0
        # By its full name, since "/cpu:0" is every member's of a gang.
        self._cpu = tf.constant(0).device
        self._is_alone = strategy.num_replicas_in_sync == 1
        # Every rank draws the same initial weights, whatever the world size.
        keras.utils.set_random_seed(rank_context.job.seed)
        with strategy.scope():
            self._model = self._build_model(rank_context)
            self._optimizer = keras.optimizers.SGD(LEARNING_RATE, momentum=MOMENTUM)
            self._optimizer.build(self._model.trainable_variables)
        passes = self._forward if self._is_forward else self._forward_backward
        self.loader = tensorflow_loader(rank_context)
        train = rank_context.data.train
        if self.loader is None:
            self._inputs, self._labels = self._placed(train.inputs), self._placed(train.labels)
        make_step = self._step_maker(train, strategy=strategy)
        self._step = self._full_step = make_step(passes)
        if spec_values(rank_context.job)["compile"] == Compilation.XLA.value:
            self._full_step = make_step(tf.function(passes, jit_compile=True, autograph=False))
            # XLA compiles for one size of a batch, so partial batches are run without it, and
            # nothing is to be traced amid an epoch.
            self._step.get_concrete_function()
        self._evaluator = Evaluator(self._model, rank_context.data.test, scope=self._scope)

    @property
    def parameter_count(self) -> int:
        return sum(int(np.prod(v.shape)) for v in self._model.trainable_variables)

    @property
    def gradient_bytes(self) -> int:
        return sum(
            int(np.prod(v.shape)) * tf.as_dtype(v.dtype).size
            for v in self._model.trainable_variables
        )

    @property
    def settings(self) -> dict[str, object]:
        """What was fixed: optimizer, learning rate, thread pools, placement, device."""
        return tensorflow_settings(self._placement)

    def matrix_product(self, side: int) -> MatrixProduct:
        return matrix_product(side)

    def take_device_memory_bytes(self) -> int | None:
        return take_device_memory_bytes()

    def step(self, indices: IndexArray, *, examples_count: int) -> float:
        summed = self._run(indices, 1.0 / examples_count, examples_count=examples_count)
        self._count_update(examples_count)
        return summed

    def prepare_evaluation(self) -> None:
        return  # The weights are the same on every rank.

    def evaluate(self, on_batch: Callable[[], None]) -> Evaluation:
        return self._evaluator.run(on_batch)

    def save(self) -> list[NDArray[Any]]:
        return [np.array(v.numpy()) for v in self._state_variables()]

    def restore(self, state: object) -> None:
        assert isinstance(state, list)
        for variable, value in zip(self._state_variables(), state, strict=True):
            variable.assign(value)

    def weight_sums(self) -> WeightSums:
        return WeightSums.of(weight.astype(np.float64) for weight in self._trained_weights())

    def weights_checksum(self) -> float:
        return checksum_of(self._model.variables)

    def take_exchange(self) -> Exchange:
        """Return the updates in full steps; a collective is sending and waiting in one."""
        exchange = Exchange(update_count=self._update_count)
        self._update_count = 0
        return exchange

    def trace(self, run_steps: Callable[[], None]) -> tuple[float, ...] | None:
        if self._is_alone:
            run_steps()
            return ()
        # The ranks did communicate: an empty trace has missed it.
        return collective_times(run_steps) or None

    def wait_for_peers(self, name: str, *, timeout_s: float) -> None:
        self._gang.wait(name, timeout_s=timeout_s)

    def leave(self) -> None:
        self._gang.leave()
        if self.loader is not None:
            self.loader.close()

    def _build_model(self, rank_context: RankContext) -> Any:
        return rank_context.model.build(
            rank_context.dataset.example_shape, rank_context.dataset.class_count
        )

    def _count_update(self, examples_count: int) -> None:
        """Count an update of a full step; partial ones are not among the timed steps."""
        self._update_count += not self._is_forward and examples_count == self._global_batch_size

    def _run(self, indices: IndexArray, scale: float, *, examples_count: int) -> float:
        """Return the sum of the losses of a step whose gradients are multiplied by `scale`."""
        step = self._step_of(examples_count)
        inputs, labels, places = self._examples(indices)
        if len(places) == 0:
            # Convolutions raise on an empty batch, and the peers wait for this rank's part of the
            # sum: one example with weight zero.
            return float(step(inputs, labels, np.zeros(1, np.int32), np.float32(0.0))) * 0.0
        return float(step(inputs, labels, places, np.float32(scale)))

    def _examples(self, indices: IndexArray) -> tuple[Any, Any, IndexArray]:
        """Return inputs and labels that have the examples of a step, and their places in these."""
        if self.loader is None:
            return self._inputs, self._labels, indices
        inputs, labels = self.loader.next(indices)
        places = np.arange(len(indices), dtype=np.int32)
        return self._placed(inputs), self._placed(labels), places

    def _placed(self, examples: Any) -> Any:
        """Return inputs or labels where steps read them."""
        return tf.convert_to_tensor(examples)

    def _step_of(self, examples_count: int) -> Step:
        """Return what runs a step of a batch of that many examples in the whole gang."""
        return self._step if examples_count < self._global_batch_size else self._full_step

    def _scope(self) -> contextlib.AbstractContextManager[Any]:
        """Where operators go that the strategy leaves free."""
        if self._placement is OperatorPlacement.HARD:
            return tf.device(self._cpu)  # type: ignore[no-any-return]
        return contextlib.nullcontext()

    def _trained_weights(self) -> list[NDArray[Any]]:
        return [v.numpy() for v in self._model.trainable_variables]

    def _state_variables(self) -> list[Any]:
        return [*self._model.variables, *self._optimizer.variables]

    def _step_maker(self, train: Examples, *, strategy: Any) -> Callable[[Passes], Step]:
        """Return what compiles a step around passes.

        Such a step maps inputs, labels, the indices of its examples in these and a scale to the sum
        of losses. The examples stay in memory as bytes and become floats inside, batch by batch.
        The batch dimension is open, so that partial and uneven batches trace nothing again.
        """

        def made(passes: Passes) -> Step:
            def on_replica(inputs: Any, labels: Any, indices: Any, scale: Any) -> Any:
                summed, gradients = passes(
                    tf.gather(inputs, indices), tf.gather(labels, indices), scale
                )
                self._update(gradients)
                return summed

            # Without autograph, which has nothing to translate here and makes up a third of the
            # time until the first step is done.
            @tf.function(  # type: ignore[untyped-decorator]
                input_signature=[
                    *example_specs(train),
                    tf.TensorSpec([None], tf.int32),
                    tf.TensorSpec([], tf.float32),
                ],
                autograph=False,
            )
            def step(inputs: Any, labels: Any, indices: Any, scale: Any) -> Any:
                with self._scope():
                    return strategy.run(on_replica, args=(inputs, labels, indices, scale))

            return step

        return made

    def _update(self, gradients: list[Any]) -> None:
        """Let the optimizer sum the gradients over the replicas and apply them, if any."""
        if gradients:
            self._optimizer.apply(gradients, self._model.trainable_variables)

    def _forward_backward(self, inputs: Any, labels: Any, scale: Any) -> tuple[Any, list[Any]]:
        """Return the sum of the losses and the gradients of it times `scale`."""
        with tf.GradientTape() as tape:
            logits = self._model(model_input(inputs), training=True)
            summed = loss_sum(logits, labels, penalties=self._model.losses)
            scaled = summed * scale
        found = tape.gradient(scaled, self._model.trainable_variables)
        # That of an embedding has rows alone, which strategies gather instead of summing them.
        return summed, [tf.convert_to_tensor(gradient) for gradient in found]

    def _forward(self, inputs: Any, labels: Any, scale: Any) -> tuple[Any, list[Any]]:
        del scale
        return loss_sum(self._model(model_input(inputs), training=False), labels), []
