"""A registered model: its facts, and its layers written once, to be built and to be counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from farm.configuration.catalogue import ModelFacts
from farm.configuration.model_size import ModelSize
from farm.trainers.models.keras_layers import KerasLayers
from farm.trainers.models.layer_counter import LayerCounter
from farm.trainers.models.layers import Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """`lay_out` makes the same layers of tensors and of shapes, so that the two cannot disagree."""

    facts: ModelFacts
    lay_out: Layout

    def build(self, example_shape: tuple[int, int, int], class_count: int) -> Any:
        """Return a new Keras model: images in [0, 1] in, logits out."""
        import keras

        layers = KerasLayers()
        image = layers.image(example_shape)
        return keras.Model(image, self.lay_out(layers, image, class_count), name=self.facts.name)

    def describe(self, example_shape: tuple[int, int, int], class_count: int) -> ModelSize:
        """Return the size of the model that `build` would return, without any framework."""
        counter = LayerCounter()
        self.lay_out(counter, counter.image(example_shape), class_count)
        return counter.size
