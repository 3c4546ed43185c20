"""The models that a sweep may name. To add one: its file, and its line in MODELS."""

from farm.trainers.contracts import Model
from farm.trainers.models.mlp import Mlp
from farm.trainers.models.shallow_cnn import ShallowCnn
from farm.trainers.models.small_cnn import SmallCnn

MODELS: tuple[Model, ...] = (
    SmallCnn(),
    ShallowCnn(),
    Mlp(),
)
