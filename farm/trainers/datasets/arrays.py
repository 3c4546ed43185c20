"""Checks the arrays of a data set, converts them to one form, hashes them and hides tokens."""

from __future__ import annotations

import dataclasses
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

_HIDING_SEED = 0
_HIDDEN_PERCENT = 15
_NOT_PREDICTED = -1


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
    """Refuse a data set that is larger than the memory of this machine.

    Raises:
        ValueError: it is.
    """
    machine_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if size_bytes > machine_bytes:
        expected = f"{name}: expected at most {byte_count(machine_bytes)}, this machine's memory"
        raise ValueError(f"{expected}, got {byte_count(size_bytes)}")


def with_hidden_tokens(data: LoadedDataset, facts: DatasetFacts) -> LoadedDataset:
    """Hide tokens, for models that are trained to restore them; the labels are the hidden ones.

    As Devlin et al. (2018): 15 % of the tokens of a sequence are to be restored. Of these 80 % are
    replaced by a token that stands for a hidden one, 10 % by any token, and 10 % stay. Each
    sequence has as many, and always the same ones, as the paper's data had. The token that stands
    for a hidden one is the first number that is not one of the data set.
    """
    rng = np.random.default_rng(_HIDING_SEED)
    train, test = (_hidden(rng, split, facts.class_count) for split in (data.train, data.test))
    return dataclasses.replace(data, train=train, test=test)


def _hidden(rng: np.random.Generator, examples: Examples, token_count: int) -> Examples:
    count, length = examples.inputs.shape
    hidden_count = max(1, length * _HIDDEN_PERCENT // 100)
    places = rng.random((count, length)).argsort(axis=1)[:, :hidden_count]
    tokens = np.take_along_axis(examples.inputs, places, axis=1)
    fate = rng.integers(0, 10, tokens.shape)
    any_token = rng.integers(0, token_count, tokens.shape, dtype=np.int32)
    shown = np.where(fate < 8, np.int32(token_count), np.where(fate == 8, any_token, tokens))
    inputs = examples.inputs.copy()
    np.put_along_axis(inputs, places, shown, axis=1)
    labels = np.full((count, length), _NOT_PREDICTED, dtype=np.int64)
    np.put_along_axis(labels, places, tokens.astype(np.int64), axis=1)
    return Examples(inputs=inputs, labels=labels)
