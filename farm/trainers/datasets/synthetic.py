"""Synthetic images of any shape that a model can learn: one random prototype per class plus noise.

Their names say that they are synthetic, and so does the source stored with every result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from farm.configuration.catalogue import DatasetFacts
from farm.trainers.contracts import Examples, LoadedDataset

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SEED = 0
# Share of the prototype in 1/256; the rest is noise. At a third the classes overlap pixel by
# pixel, and a network of any of the shapes still learns to tell them apart.
_PROTOTYPE_SHARE = 90
# Made at once, so that the wide intermediate stays small.
_PART_EXAMPLES, _PART_PIXELS = 1000, 12_288_000


@dataclass(frozen=True, slots=True)
class Synthetic:
    """A data set made on the spot from a fixed seed: the same bytes on every machine."""

    facts: DatasetFacts

    def load(self, places: Sequence[Path]) -> LoadedDataset:
        """Make the examples: each class a random prototype with noise. Nothing is read."""
        del places
        import numpy as np

        from farm.trainers.datasets.arrays import loaded, sha256_of_splits

        facts = self.facts
        rng = np.random.default_rng(SEED)
        shape = (facts.class_count, *facts.example_shape)
        prototypes = rng.integers(0, 256, shape, dtype=np.uint8)
        train = _examples(rng, prototypes, count=facts.train_examples_count)
        test = _examples(rng, prototypes, count=facts.test_examples_count)
        return loaded(
            facts,
            train,
            test,
            origin=f"synthetic, seed {SEED}",
            sha256=sha256_of_splits(train, test),
        )


def _examples(rng: np.random.Generator, prototypes: NDArray[np.uint8], *, count: int) -> Examples:
    import numpy as np

    labels = rng.integers(0, len(prototypes), count, dtype=np.int64)
    images = np.empty((count, *prototypes.shape[1:]), dtype=np.uint8)
    weighted = prototypes.astype(np.uint16) * _PROTOTYPE_SHARE
    part_count = min(_PART_EXAMPLES, _PART_PIXELS // images[0].size)
    for first in range(0, count, part_count):
        part = slice(first, first + part_count)
        noise = rng.integers(0, 256, images[part].shape, dtype=np.uint8)
        mixed = noise.astype(np.uint16) * (256 - _PROTOTYPE_SHARE) + weighted[labels[part]]
        images[part] = mixed >> 8
    return Examples(inputs=images, labels=labels)


def _synthetic(
    name: str, example_shape: tuple[int, int, int], *, class_count: int, counts: tuple[int, int]
) -> Synthetic:
    return Synthetic(
        DatasetFacts(
            name=name,
            summary="random, learnable images",
            train_examples_count=counts[0],
            test_examples_count=counts[1],
            example_shape=example_shape,
            class_count=class_count,
            is_synthetic=True,
        )
    )


SYNTHETIC_DIGITS = _synthetic("synthetic_digits", (8, 8, 1), class_count=10, counts=(1437, 360))
SYNTHETIC_MNIST = _synthetic(
    "synthetic_mnist", (28, 28, 1), class_count=10, counts=(60_000, 10_000)
)
SYNTHETIC_CIFAR10 = _synthetic(
    "synthetic_cifar10", (32, 32, 3), class_count=10, counts=(50_000, 10_000)
)
# The shape and classes of ImageNet at 64x64, and as many examples as 135 MB hold.
SYNTHETIC_IMAGENET64 = _synthetic(
    "synthetic_imagenet64", (64, 64, 3), class_count=1000, counts=(10_000, 1_000)
)
# As ImageNet is cut for training, with an example of each class: 150 MB.
SYNTHETIC_IMAGENET = _synthetic(
    "synthetic_imagenet", (224, 224, 3), class_count=1000, counts=(1_000, 100)
)
