"""A registered model: its facts, and its layers written once, to be built and to be counted."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from farm.configuration.catalogue import ModelFacts
from farm.configuration.model_size import FLOAT_BYTES, ModelSize
from farm.trainers.models.layers import EPSILON, MOVING_AVERAGE_MOMENTUM, Layout, Padding


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """`lay_out` makes the same layers of tensors and of shapes, so that the two cannot disagree."""

    facts: ModelFacts
    lay_out: Layout

    def build(self, example_shape: tuple[int, ...], class_count: int) -> Any:
        """Return a new Keras model: images in [0, 1] in, logits out."""
        import keras

        layers = KerasLayers()
        image = layers.image(example_shape)
        return keras.Model(image, self.lay_out(layers, image, class_count), name=self.facts.name)

    def describe(self, example_shape: tuple[int, ...], class_count: int) -> ModelSize:
        """Return the size of the model that `build` would return, without any framework."""
        counter = LayerCounter()
        self.lay_out(counter, counter.image(example_shape), class_count)
        return counter.size


# Counts what a model's layers hold and compute, from their shapes alone.


Shape = tuple[int, ...]


class LayerCounter:
    """Layers on shapes without the batch, such as (28, 28, 1); see `Layers`.

    Kept for the backward pass is what the gradient of a layer reads: the input of convolutions,
    dense layers and normalisation, the output of ReLU, both of pooling. So an output that only goes
    into a ReLU or a sum is not counted.
    """

    def __init__(self) -> None:
        self._parameter_count = 0
        self._statistics_count = 0
        self._flop = 0
        self._kept_count = 0  # numbers, of one example

    @property
    def size(self) -> ModelSize:
        """What all layers so far come to."""
        return ModelSize(
            parameter_count=self._parameter_count,
            statistics_count=self._statistics_count,
            forward_flop_per_example=self._flop,
            activation_bytes_per_example=self._kept_count * FLOAT_BYTES,
        )

    def image(self, example_shape: Shape) -> Shape:
        """Return the input of a model."""
        return self._kept(example_shape)

    def conv(
        self,
        x: Shape,
        filters: int,
        kernel: int,
        *,
        stride: int = 1,
        padding: Padding = "same",
        has_bias: bool = True,
        is_rectified: bool = False,
    ) -> Shape:
        del is_rectified  # in place: ReLU's gradient needs its output alone
        made = (*_windows(x, kernel, stride, padding), filters)
        self._weigh(kernel * kernel * x[-1], made, has_bias=has_bias)
        return self._kept(made)

    def normalise(self, x: Shape) -> Shape:
        self._parameter_count += 2 * x[-1]
        self._statistics_count += 2 * x[-1]
        return x

    def rectify(self, x: Shape) -> Shape:
        return self._kept(x)

    def max_pool(self, x: Shape, size: int, *, stride: int, padding: Padding = "same") -> Shape:
        return self._kept((*_windows(x, size, stride, padding), x[-1]))

    def average(self, x: Shape) -> Shape:
        return self._kept((x[-1],))

    def add(self, x: Shape, y: Shape) -> Shape:
        assert x == y, (x, y)
        return x

    def concatenate(self, parts: list[Shape]) -> Shape:
        assert len({part[:-1] for part in parts}) == 1, parts
        return self._kept((*parts[0][:-1], sum(part[-1] for part in parts)))

    def flatten(self, x: Shape) -> Shape:
        return (math.prod(x),)

    def dense(self, x: Shape, units: int, *, is_rectified: bool = False) -> Shape:
        del is_rectified
        made = (units,)
        self._weigh(x[0], made, has_bias=True)
        return self._kept(made)

    def channel_count(self, x: Shape) -> int:
        return x[-1]

    def side(self, x: Shape) -> int:
        return min(x[:2])

    def _weigh(self, input_count: int, made: Shape, *, has_bias: bool) -> None:
        """Count a layer each of whose outputs is a weighted sum of `input_count` numbers."""
        self._parameter_count += (input_count + has_bias) * made[-1]
        self._flop += (2 * input_count + has_bias) * math.prod(made)

    def _kept(self, made: Shape) -> Shape:
        assert all(length >= 1 for length in made), made
        self._kept_count += math.prod(made)
        return made


def _windows(x: Shape, size: int, stride: int, padding: Padding) -> Shape:
    """Return height and width of what a sliding window of that size makes of an image."""
    if padding == "same":
        return tuple(-(-length // stride) for length in x[:2])
    return tuple((length - size) // stride + 1 for length in x[:2])


class KerasLayers:
    """Layers on Keras tensors; see `Layers`."""

    def __init__(self) -> None:
        from keras import layers

        self._layers = layers

    def image(self, example_shape: tuple[int, ...]) -> Any:
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
