"""A multilayer perceptron with one hidden layer of 128: 101,770 parameters at 28x28x1."""

from __future__ import annotations

from typing import Any

from farm.core.catalogue import ModelFacts


class Mlp:
    facts = ModelFacts(name="mlp", summary="one hidden layer of 128")

    def build(self, example_shape: tuple[int, int, int], class_count: int) -> Any:
        import keras
        from keras import layers

        return keras.Sequential(
            [
                layers.Input(example_shape),
                layers.Flatten(),
                layers.Dense(128, activation="relu"),
                layers.Dense(class_count),
            ]
        )
