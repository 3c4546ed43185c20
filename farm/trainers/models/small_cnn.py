"""The small Sequential CNN of the published measurements.

Conv 32, pool, Conv 64, pool, Conv 64 (3x3 kernels), Dense 64, Dense classes: 122,570 parameters
at 32x32x3 and ten classes, of which 56,320 before the head.
"""

from __future__ import annotations

from typing import Any

from farm.core.catalogue import ModelFacts

# Below it three unpadded convolutions and two poolings leave less than one pixel: 22 -> 20 -> 10
# -> 8 -> 4 -> 2, but 8 -> 6 -> 3 -> 1 -> 0. Smaller images are padded instead.
SMALLEST_UNPADDED_SIDE = 22


class SmallCnn:
    facts = ModelFacts(name="small_cnn", summary="3 convolutions (32, 64, 64) and Dense 64")

    def build(self, example_shape: tuple[int, int, int], class_count: int) -> Any:
        """Build it unpadded, as published, or padded for images under 22 pixels."""
        import keras
        from keras import layers

        side = min(example_shape[:2])
        padding = "valid" if side >= SMALLEST_UNPADDED_SIDE else "same"
        return keras.Sequential(
            [
                layers.Input(example_shape),
                layers.Conv2D(32, 3, padding=padding, activation="relu"),
                layers.MaxPooling2D(),
                layers.Conv2D(64, 3, padding=padding, activation="relu"),
                layers.MaxPooling2D(),
                layers.Conv2D(64, 3, padding=padding, activation="relu"),
                layers.Flatten(),
                layers.Dense(64, activation="relu"),
                layers.Dense(class_count),
            ]
        )
