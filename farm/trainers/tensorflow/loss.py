"""A model's inputs, loss and evaluation, the same for all TensorFlow strategies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import tensorflow as tf

from farm.trainers.contracts import Evaluation, Examples
from farm.trainers.hyperparameters import evaluation_parts


def model_input(inputs: Any) -> Any:
    """Return images, which stay in memory as bytes, as floats from 0 to 1; tokens as they are."""
    return tf.cast(inputs, tf.float32) / 255.0 if inputs.dtype == tf.uint8 else inputs


def loss_sum(logits: Any, labels: Any, *, penalties: Sequence[Any] = ()) -> Any:
    """Return the sum over the examples of cross-entropy and penalties, in float32.

    Where an example is a sequence, its loss is the mean over the tokens that are predicted: those
    whose label is not negative.

    `penalties`: a model's own losses, such as those of regularisers. The mean over a global batch
    has each of them once: a rank adds them for each of its examples, and the gradients of all
    ranks are divided by the size of the global batch. A model that computes in a smaller type
    gives logits of that type; the loss is computed in float32 nonetheless.
    """
    are_sequences = labels.shape.rank == 2
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=tf.maximum(labels, 0) if are_sequences else labels,
        logits=tf.cast(logits, tf.float32),
    )
    if are_sequences:
        is_predicted = tf.cast(labels >= 0, tf.float32)
        sums = tf.reduce_sum(losses * is_predicted, axis=1)
        losses = sums / tf.reduce_sum(is_predicted, axis=1)
    total = tf.reduce_sum(losses)
    if not penalties:
        return total
    once = tf.add_n([tf.reduce_sum(tf.cast(penalty, tf.float32)) for penalty in penalties])
    return total + once * tf.cast(tf.shape(labels)[0], tf.float32)


class Evaluator:
    """Holds the compiled evaluation of `model`, with whatever weights that has when asked.

    `scope`: makes the context in which its operators are built, such as that of a device.
    """

    def __init__(
        self,
        model: Any,
        test: Examples,
        *,
        scope: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self._model = model
        self._test = test
        self._scope = scope
        self.function = tf.function(
            self._evaluate,
            input_signature=[
                tf.TensorSpec([None, *array.shape[1:]], tf.as_dtype(array.dtype))
                for array in (test.inputs, test.labels)
            ],
            autograph=False,
        )

    def run(self, on_batch: Callable[[], None]) -> Evaluation:
        """Evaluate all of it; `on_batch` is called after each part."""
        labels = self._test.labels
        total, correct_count = 0.0, 0
        for part in evaluation_parts(labels.shape):
            loss, correct = self.function(self._test.inputs[part], labels[part])
            total += float(loss)
            correct_count += int(correct)
            on_batch()
        return Evaluation(
            val_loss=total / len(labels),
            val_accuracy_ratio=correct_count / int((labels >= 0).sum()),
        )

    def _evaluate(self, inputs: Any, labels: Any) -> tuple[Any, Any]:
        with self._scope():
            logits = self._model(model_input(inputs), training=False)
            hits = tf.equal(tf.argmax(logits, axis=-1), labels)
            return loss_sum(logits, labels), tf.math.count_nonzero(hits)
