"""Converts stored examples to the inputs of a model."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def model_input(inputs: Any) -> Any:
    """Return images, which stay in memory as bytes, as floats from 0 to 1; tokens as they are."""
    return tf.cast(inputs, tf.float32) / 255.0 if inputs.dtype == tf.uint8 else inputs
