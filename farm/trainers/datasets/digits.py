"""Handwritten digits of 8x8 pixels: real images that come with scikit-learn, without a download."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from farm.configuration.catalogue import DatasetFacts
from farm.trainers.contracts import LoadedDataset
from farm.trainers.failures import DatasetMissing

TRAIN_EXAMPLES_COUNT = 1437
_GREY_LEVELS = 16  # the images count pixels of 4x4 blocks, 0 to 16


class Digits:
    facts = DatasetFacts(
        name="digits",
        summary="handwritten digits, part of scikit-learn",
        train_examples_count=TRAIN_EXAMPLES_COUNT,
        test_examples_count=360,
        example_shape=(8, 8, 1),
        class_count=10,
        is_synthetic=False,
    )

    def load(self, places: Sequence[Path]) -> LoadedDataset:
        """Split in the file's order: the test split's writers are not those of the training."""
        del places
        try:
            import sklearn
            from sklearn.datasets import load_digits
        except ImportError as error:
            raise DatasetMissing("digits: scikit-learn is not installed; install it") from error
        from farm.trainers.datasets.arrays import loaded, sha256_of_splits, split

        bunch = load_digits()
        images = (bunch.images * (255 / _GREY_LEVELS)).astype("uint8")
        train = split(images[:TRAIN_EXAMPLES_COUNT], bunch.target[:TRAIN_EXAMPLES_COUNT])
        test = split(images[TRAIN_EXAMPLES_COUNT:], bunch.target[TRAIN_EXAMPLES_COUNT:])
        return loaded(
            self.facts,
            train,
            test,
            origin=f"scikit-learn {sklearn.__version__}",
            sha256=sha256_of_splits(train, test),
        )
