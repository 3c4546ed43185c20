"""Builds a model of Keras layers, the same under every backend of Keras."""

from __future__ import annotations

from typing import Any

from farm.trainers.models.layers import EPSILON, MOVING_AVERAGE_MOMENTUM, Padding


class KerasLayers:
    """Layers on Keras tensors; see `Layers`."""

    def __init__(self) -> None:
        from keras import layers

        self._layers = layers

    def image(self, example_shape: tuple[int, int, int]) -> Any:
        """Return the input of a model."""
        return self._layers.Input(example_shape)

    def conv(
        self,
        x: Any,
        filters: int,
        kernel: int,
        *,
        stride: int = 1,
        padding: Padding = "same",
        has_bias: bool = True,
        is_rectified: bool = False,
    ) -> Any:
        return self._layers.Conv2D(
            filters,
            kernel,
            strides=stride,
            padding=padding,
            use_bias=has_bias,
            activation="relu" if is_rectified else None,
        )(x)

    def normalise(self, x: Any) -> Any:
        return self._layers.BatchNormalization(momentum=MOVING_AVERAGE_MOMENTUM, epsilon=EPSILON)(x)

    def rectify(self, x: Any) -> Any:
        return self._layers.ReLU()(x)

    def max_pool(self, x: Any, size: int, *, stride: int, padding: Padding = "same") -> Any:
        return self._layers.MaxPooling2D(size, strides=stride, padding=padding)(x)

    def average(self, x: Any) -> Any:
        return self._layers.GlobalAveragePooling2D()(x)

    def add(self, x: Any, y: Any) -> Any:
        return self._layers.Add()([x, y])

    def concatenate(self, parts: list[Any]) -> Any:
        return self._layers.Concatenate()(parts)

    def flatten(self, x: Any) -> Any:
        return self._layers.Flatten()(x)

    def dense(self, x: Any, units: int, *, is_rectified: bool = False) -> Any:
        return self._layers.Dense(units, activation="relu" if is_rectified else None)(x)

    def channel_count(self, x: Any) -> int:
        return int(x.shape[-1])

    def side(self, x: Any) -> int:
        return int(min(x.shape[1:3]))
