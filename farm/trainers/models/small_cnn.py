"""The small Sequential CNN of the published measurements.

Conv 32, pool, Conv 64, pool, Conv 64 (3x3 kernels), Dense 64, Dense classes: 122,570 parameters
at 32x32x3 and ten classes, of which 56,320 before the head.
"""

from __future__ import annotations

from farm.configuration.catalogue import ModelFacts
from farm.trainers.models.architecture import Architecture
from farm.trainers.models.layers import Layers, Padding, T

# Below it three unpadded convolutions and two poolings leave less than one pixel: 22 -> 20 -> 10
# -> 8 -> 4 -> 2, but 8 -> 6 -> 3 -> 1 -> 0. Smaller images are padded instead.
SMALLEST_UNPADDED_SIDE = 22


def _lay_out(layers: Layers[T], image: T, class_count: int) -> T:
    """Unpadded, as published, or padded for images under 22 pixels."""
    padding: Padding = "valid" if layers.side(image) >= SMALLEST_UNPADDED_SIDE else "same"
    x = layers.conv(image, 32, 3, padding=padding, is_rectified=True)
    x = layers.end_block(layers.max_pool(x, 2, stride=2, padding="valid"))
    x = layers.conv(x, 64, 3, padding=padding, is_rectified=True)
    x = layers.end_block(layers.max_pool(x, 2, stride=2, padding="valid"))
    x = layers.end_block(layers.conv(x, 64, 3, padding=padding, is_rectified=True))
    x = layers.dense(layers.flatten(x), 64, is_rectified=True)
    return layers.dense(layers.end_block(x), class_count)


SMALL_CNN = Architecture(
    facts=ModelFacts(
        name="small_cnn",
        summary="three convolutions (32, 64, 64) and a dense layer of 64",
        smallest_side=4,
    ),
    lay_out=_lay_out,
)
