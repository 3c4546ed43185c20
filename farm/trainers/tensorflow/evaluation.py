"""Evaluate a Keras model on the test split, batch by batch."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import tensorflow as tf

from farm.trainers.contracts import Evaluation, Examples
from farm.trainers.hyperparameters import evaluation_parts
from farm.trainers.tensorflow.inputs import model_input
from farm.trainers.tensorflow.loss import loss_sum


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
            return self._evaluate_here(inputs, labels)

    def _evaluate_here(self, inputs: Any, labels: Any) -> tuple[Any, Any]:
        logits = self._model(model_input(inputs), training=False)
        hits = tf.equal(tf.argmax(logits, axis=-1), labels)
        return loss_sum(logits, labels), tf.math.count_nonzero(hits)
