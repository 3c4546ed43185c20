"""A multilayer perceptron with one hidden layer of 128: 101,770 parameters at 28x28x1."""

from __future__ import annotations

from farm.configuration.catalogue import ModelFacts
from farm.trainers.models.architecture import Architecture
from farm.trainers.models.layers import Layers, T


def _lay_out(layers: Layers[T], image: T, class_count: int) -> T:
    x = layers.dense(layers.flatten(image), 128, is_rectified=True)
    return layers.dense(layers.end_block(x), class_count)


MLP = Architecture(
    facts=ModelFacts(name="mlp", summary="one hidden layer of 128"), lay_out=_lay_out
)
