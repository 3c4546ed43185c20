"""Synthetic sequences of tokens: a random Markov chain, whose next token a model can learn.

Each token has four successors, which follow it 7, 3, 2 and 2 times in 16; in the other two cases
any token follows. Small numbers are more frequent, as some words of a language are. So a model
first learns how frequent each token is (the loss falls from ln 256 = 5.5 to 4.9), and then which
token follows (to 2.0, and an accuracy of 0.45).

All random numbers are whole numbers, since the last digit of a logarithm may differ between
machines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from farm.configuration.catalogue import DatasetFacts, ExampleKind
from farm.trainers.contracts import Examples, LoadedDataset

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SEED = 0
# Which successor follows, by a number below 16; the last ones stand for any token.
_CHOICES = (0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 3, 3, 4, 4)
_SUCCESSOR_COUNT = 4


@dataclass(frozen=True, slots=True)
class SyntheticTokens:
    """Sequences made on the spot from a fixed seed: the same tokens on every machine.

    An example is a sequence; its labels are what follows each of its tokens.
    """

    facts: DatasetFacts

    def load(self, places: Sequence[Path]) -> LoadedDataset:
        """Make the token sequences: each token has a few frequent successors. Nothing is read."""
        del places
        import numpy as np

        from farm.trainers.datasets.arrays import loaded, sha256_of_splits

        facts = self.facts
        rng = np.random.default_rng(SEED)
        successors = _frequent(rng, (facts.class_count, _SUCCESSOR_COUNT), facts.class_count)
        train = _examples(rng, successors, facts, count=facts.train_examples_count)
        test = _examples(rng, successors, facts, count=facts.test_examples_count)
        return loaded(
            facts,
            train,
            test,
            origin=f"synthetic, seed {SEED}",
            sha256=sha256_of_splits(train, test),
        )


def _examples(
    rng: np.random.Generator, successors: NDArray[np.int32], facts: DatasetFacts, *, count: int
) -> Examples:
    import numpy as np

    (length,) = facts.example_shape
    choices = np.array(_CHOICES)
    tokens = np.empty((count, length + 1), dtype=np.int32)
    tokens[:, 0] = _frequent(rng, (count,), facts.class_count)
    for position in range(length):
        chosen = choices[rng.integers(0, len(choices), count)]
        following = _frequent(rng, (count,), facts.class_count)
        is_successor = chosen < _SUCCESSOR_COUNT
        following[is_successor] = successors[tokens[is_successor, position], chosen[is_successor]]
        tokens[:, position + 1] = following
    return Examples(
        inputs=np.ascontiguousarray(tokens[:, :-1]), labels=tokens[:, 1:].astype(np.int64)
    )


def _frequent(
    rng: np.random.Generator, shape: tuple[int, ...], token_count: int
) -> NDArray[np.int32]:
    """Draw tokens of which small ones are frequent: the product of two numbers up to the count."""
    import numpy as np

    one, other = (rng.integers(1, token_count, shape, endpoint=True) for _ in range(2))
    return ((one * other - 1) // token_count).astype(np.int32)


SYNTHETIC_TOKENS = SyntheticTokens(
    DatasetFacts(
        name="synthetic_tokens",
        summary="random sequences whose next token can be learned",
        train_examples_count=10_000,
        test_examples_count=100,
        example_shape=(128,),
        class_count=256,
        is_synthetic=True,
        kind=ExampleKind.TOKENS,
    )
)
