"""The shallow CNN: two convolutions with max-pooling, an 800-vector, Dense 500, the classes.

20 and 50 filters of 5x5 turn 28x28x1 into 4x4x50 = 800; with ten classes 431,080 parameters.
"""

from __future__ import annotations

from typing import Any

from farm.core.catalogue import ModelFacts

# 16 -> 12 -> 6 -> 2 -> 1 is the last that fits unpadded. Smaller images are padded instead, so
# that the vector between the parts is 800 at 28x28 only.
SMALLEST_UNPADDED_SIDE = 16


class ShallowCnn:
    facts = ModelFacts(
        name="shallow_cnn", summary="2 convolutions of 5x5 (20, 50) with pooling and Dense 500"
    )

    def build(self, example_shape: tuple[int, int, int], class_count: int) -> Any:
        """Build it unpadded, as published, or padded for images under 16 pixels."""
        import keras
        from keras import layers

        side = min(example_shape[:2])
        padding = "valid" if side >= SMALLEST_UNPADDED_SIDE else "same"
        return keras.Sequential(
            [
                layers.Input(example_shape),
                layers.Conv2D(20, 5, padding=padding, activation="relu"),
                layers.MaxPooling2D(),
                layers.Conv2D(50, 5, padding=padding, activation="relu"),
                layers.MaxPooling2D(),
                layers.Flatten(),
                layers.Dense(500, activation="relu"),
                layers.Dense(class_count),
            ]
        )
