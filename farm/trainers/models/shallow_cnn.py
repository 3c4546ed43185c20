"""The shallow CNN: two convolutions with max-pooling, an 800-vector, Dense 500, the classes.

20 and 50 filters of 5x5 turn 28x28x1 into 4x4x50 = 800; with ten classes 431,080 parameters.
"""

from __future__ import annotations

from farm.configuration.catalogue import ModelFacts
from farm.trainers.models.architecture import Architecture
from farm.trainers.models.layers import Layers, Padding, T

# 16 -> 12 -> 6 -> 2 -> 1 is the last that fits unpadded. Smaller images are padded instead, so
# that the vector between the parts is 800 at 28x28 only.
SMALLEST_UNPADDED_SIDE = 16


def _lay_out(layers: Layers[T], image: T, class_count: int) -> T:
    """Unpadded, as published, or padded for images under 16 pixels."""
    padding: Padding = "valid" if layers.side(image) >= SMALLEST_UNPADDED_SIDE else "same"
    x = layers.conv(image, 20, 5, padding=padding, is_rectified=True)
    x = layers.end_block(layers.max_pool(x, 2, stride=2, padding="valid"))
    x = layers.conv(x, 50, 5, padding=padding, is_rectified=True)
    x = layers.end_block(layers.max_pool(x, 2, stride=2, padding="valid"))
    x = layers.dense(layers.flatten(x), 500, is_rectified=True)
    return layers.dense(layers.end_block(x), class_count)


SHALLOW_CNN = Architecture(
    facts=ModelFacts(
        name="shallow_cnn",
        summary="two convolutions of 5x5 (20, 50) and a dense layer of 500",
        smallest_side=4,
    ),
    lay_out=_lay_out,
)
