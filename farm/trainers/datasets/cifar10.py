"""CIFAR-10: 32x32 colour images, from the published pickles, unpacked or in their tar file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from farm.configuration.catalogue import DatasetFacts
from farm.trainers.contracts import LoadedDataset
from farm.trainers.datasets.download import RemoteFile
from farm.trainers.datasets.locations import load_published

ARCHIVE = RemoteFile(
    file_name="cifar-10-python.tar.gz",
    url="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
    sha256="6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
)


class Cifar10:
    facts = DatasetFacts(
        name="cifar10",
        summary="photographs of ten kinds of things",
        train_examples_count=50_000,
        test_examples_count=10_000,
        example_shape=(32, 32, 3),
        class_count=10,
        is_synthetic=False,
    )

    def load(self, places: Sequence[Path]) -> LoadedDataset:
        """Read the first place that has it, or download it into the first place."""
        from farm.trainers.datasets.cifar10_files import read_cifar10

        return load_published(self.facts, places, archive=ARCHIVE, read=read_cifar10)
