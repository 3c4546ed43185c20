"""Checks the arrays of a data set, converts them to one form and hashes them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from farm.configuration.catalogue import DatasetFacts, ExampleKind
from farm.messages.trainer_lines import DatasetSource
from farm.text.display import byte_count
from farm.trainers.contracts import Examples, LoadedDataset
from farm.trainers.failures import DatasetMissing


def split(images: NDArray[Any], labels: NDArray[Any]) -> Examples:
    """Bring images into the common form: (n, height, width, channels), int64 labels."""
    if images.ndim == 3:
        images = images[..., np.newaxis]
    return Examples(
        inputs=np.ascontiguousarray(images, dtype=np.uint8),
        labels=np.ascontiguousarray(labels, dtype=np.int64).reshape(-1),
    )


def loaded(
    facts: DatasetFacts, train: Examples, test: Examples, *, origin: str, sha256: str
) -> LoadedDataset:
    """Put both splits and their source together.

    Raises:
        DatasetMissing: they are not what the data set's facts promise.
    """
    for name, examples, count in (
        ("training", train, facts.train_examples_count),
        ("test", test, facts.test_examples_count),
    ):
        expected = (count, *facts.example_shape)
        labels = expected if facts.kind is ExampleKind.TOKENS else (count,)
        if examples.inputs.shape != expected or examples.labels.shape != labels:
            raise DatasetMissing(
                f"{facts.name} in {origin}: expected {name} {facts.kind.value} of shape {expected},"
                f" got {examples.inputs.shape} with {len(examples.labels)} labels"
            )
        numbers: dict[str, NDArray[Any]] = {"labels": examples.labels}
        if facts.kind is ExampleKind.TOKENS:
            numbers["tokens"] = examples.inputs
        for what, array in numbers.items():
            if array.min() < 0 or array.max() >= facts.class_count:
                raise DatasetMissing(
                    f"{facts.name} in {origin}: expected {what} from 0 to {facts.class_count - 1}, "
                    f"got {array.min()} to {array.max()}"
                )
    source = DatasetSource(
        name=facts.name,
        origin=origin,
        sha256=sha256,
        is_synthetic=facts.is_synthetic,
        train_examples_count=len(train.labels),
        test_examples_count=len(test.labels),
    )
    return LoadedDataset(train=train, test=test, source=source)


def sha256_of_files(paths: Iterable[Path]) -> str:
    """Return the SHA-256 of the contents one after the other, in the order given."""
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    return digest.hexdigest()


def sha256_of_splits(*splits: Examples) -> str:
    """Return the SHA-256 of data that has no file: each split's inputs, then its labels."""
    digest = hashlib.sha256()
    for examples in splits:
        little = examples.inputs.dtype.newbyteorder("<")
        digest.update(examples.inputs.astype(little, copy=False).data)
        digest.update(examples.labels.astype("<i8").data)
    return digest.hexdigest()


def check_memory(size_bytes: int, name: str) -> None:
    """Refuse what is larger than the memory of this machine.

    Raises:
        ValueError: it is.
    """
    machine_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if size_bytes > machine_bytes:
        expected = f"{name}: expected at most {byte_count(machine_bytes)}, this machine's memory"
        raise ValueError(f"{expected}, got {byte_count(size_bytes)}")
