"""The registries of models, data sets and strategies."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from farm import registry
from farm.errors import InvalidSpec
from farm.trainers.datasets import DATASETS
from farm.trainers.models import MODELS
from farm.trainers.strategies import STRATEGIES


def test_every_registered_name_is_found_and_is_in_the_catalogue() -> None:
    known = registry.catalogue()
    for model in MODELS:
        assert registry.model(model.facts.name) is model
        assert known.models[model.facts.name] == model.facts
    for dataset in DATASETS:
        assert registry.dataset(dataset.facts.name) is dataset
        assert known.datasets[dataset.facts.name] == dataset.facts
    for strategy in STRATEGIES:
        assert registry.strategy(strategy.facts.name) is strategy
        assert known.strategies[strategy.facts.name] == strategy.facts


def test_no_two_entries_share_a_name() -> None:
    known = registry.catalogue()
    assert len(known.models) == len(MODELS)
    assert len(known.datasets) == len(DATASETS)
    assert len(known.strategies) == len(STRATEGIES)


@pytest.mark.parametrize(
    ("look_up", "field", "known"),
    [
        (registry.model, "model", "small_cnn"),
        (registry.dataset, "dataset", "digits"),
        (registry.strategy, "strategy", "mwms_ring"),
    ],
)
def test_an_unknown_name_is_refused_with_the_known_ones(
    look_up: Callable[[str], object], field: str, known: str
) -> None:
    with pytest.raises(InvalidSpec, match=known) as caught:
        look_up("nothing")
    assert caught.value.field == field
