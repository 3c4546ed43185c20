"""Look up models, data sets and strategies by name; everything that a sweep may name.

Pure descriptions: importing this loads no framework.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from farm.core.catalogue import Catalogue
from farm.errors import InvalidSpec
from farm.trainers.contracts import Dataset, Model, Strategy
from farm.trainers.datasets import DATASETS
from farm.trainers.models import MODELS
from farm.trainers.strategies import STRATEGIES

_Entry = TypeVar("_Entry", Model, Dataset, Strategy)


def catalogue() -> Catalogue:
    """Return the facts of every registered model, data set and strategy, by name."""
    return Catalogue(
        models={entry.facts.name: entry.facts for entry in MODELS},
        datasets={entry.facts.name: entry.facts for entry in DATASETS},
        strategies={entry.facts.name: entry.facts for entry in STRATEGIES},
    )


def model(name: str) -> Model:
    """Return the model of that name. Raises InvalidSpec, which names the known ones."""
    return _find("model", name, MODELS)


def dataset(name: str) -> Dataset:
    """Return the data set of that name. Raises InvalidSpec, which names the known ones."""
    return _find("dataset", name, DATASETS)


def strategy(name: str) -> Strategy:
    """Return the strategy of that name. Raises InvalidSpec, which names the known ones."""
    return _find("strategy", name, STRATEGIES)


def _find(field: str, name: str, entries: Sequence[_Entry]) -> _Entry:
    for entry in entries:
        if entry.facts.name == name:
            return entry
    raise InvalidSpec(field, name, f"one of {', '.join(e.facts.name for e in entries)}")
