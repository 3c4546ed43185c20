"""How much a gang achieves a second, and at what expense. Pure."""

from __future__ import annotations

from farm.configuration.catalogue import ExampleKind
from farm.measuring.measurement import AttemptFigures, Unknown


def tokens_per_s(figures: AttemptFigures) -> float | Unknown | None:
    """Return the tokens that the whole gang took in a second, hidden ones among them."""
    dataset = figures.dataset
    if dataset is None:
        return Unknown("a script does not tell how many tokens an example has")
    if dataset.kind is not ExampleKind.TOKENS:
        return Unknown(f"its examples are {dataset.kind.value}")
    examples_per_s = figures.throughput_examples_per_s
    return None if examples_per_s is None else examples_per_s * dataset.example_shape[0]
