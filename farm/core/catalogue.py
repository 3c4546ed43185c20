"""The pure facts about models, data sets and strategies that validation and advice need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """Parameter counts depend on the data set's shape, so only a built model knows them."""

    name: str
    summary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetFacts:
    name: str
    summary: str
    train_examples_count: int
    test_examples_count: int
    example_shape: tuple[int, int, int]  # height, width, channels
    class_count: int
    is_synthetic: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What one rank sends per step on the critical path."""

    messages: int
    bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyFacts:
    """`max_world_size` None: no limit. A strategy of one rank uses no network at all."""

    name: str
    summary: str
    framework: str
    min_world_size: int = 1
    max_world_size: int | None = None
    is_synchronous: bool = True
    uses_servers: bool = False  # parameter servers beside the ranks that train

    @property
    def uses_network(self) -> bool:
        """Whether delay and bandwidth between ranks are axes of it."""
        return self.max_world_size != 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """Everything that a sweep may name."""

    models: Mapping[str, ModelFacts]
    datasets: Mapping[str, DatasetFacts]
    strategies: Mapping[str, StrategyFacts]
