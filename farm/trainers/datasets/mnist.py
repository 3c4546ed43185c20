"""MNIST: 28x28 grey images, from mnist.npz or the four IDX files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from farm.configuration.catalogue import DatasetFacts
from farm.trainers.contracts import LoadedDataset
from farm.trainers.datasets.download import RemoteFile
from farm.trainers.datasets.locations import load_published

ARCHIVE = RemoteFile(
    file_name="mnist.npz",
    url="https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz",
    sha256="731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1",
)


class Mnist:
    facts = DatasetFacts(
        name="mnist",
        summary="handwritten digits",
        train_examples_count=60_000,
        test_examples_count=10_000,
        example_shape=(28, 28, 1),
        class_count=10,
        is_synthetic=False,
    )

    def load(self, places: Sequence[Path]) -> LoadedDataset:
        """Read the first place that has it, or download it into the first place."""
        from farm.trainers.datasets.mnist_files import read_mnist

        return load_published(self.facts, places, archive=ARCHIVE, read=read_mnist)
