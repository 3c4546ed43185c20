"""The loss that TensorFlow minimises, for every strategy alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf


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
