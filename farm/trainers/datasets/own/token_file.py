"""Reads a stream of tokens and cuts it into sequences.

The file is a `.npy` file of whole numbers, or has nanoGPT's format: a `.bin` file of little-endian
16-bit numbers, or a folder with `train.bin` and `val.bin`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from farm.configuration.own_data import MOST_CLASSES
from farm.trainers.contracts import Examples
from farm.trainers.datasets.arrays import check_memory
from farm.trainers.datasets.locations import Found
from farm.trainers.datasets.own.arrays_file import TEST_EVERY, read_array

_TOKEN = np.dtype("<u2")
# In memory each is an input of 4 bytes and a label of 8.
_BYTES_PER_TOKEN = 12
_SPLITS = ("train.bin", "val.bin")


def has_tokens(path: Path) -> bool:
    """Whether what is there is a stream of tokens, by its names."""
    if path.is_dir():
        return all((path / name).is_file() for name in _SPLITS)
    return path.suffix in (".bin", ".npy") and path.is_file()


def read_token_files(path: Path, *, sequence_length: int) -> Found:
    """Read both splits of what `has_tokens`; of one file the last tenth is for testing.

    An example is a sequence, whose labels are the tokens that follow its own. What is left over at
    the end is left out.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no such file, has less than two sequences, or does not fit into memory.
    """
    if path.is_dir():
        train, test = (
            _examples(_stream(path / name), sequence_length, name=name, least=1) for name in _SPLITS
        )
        return Found(train=train, test=test, paths=(path,))
    everything = _examples(_stream(path), sequence_length, name=path.name, least=2)
    first = len(everything.inputs) - max(1, len(everything.inputs) // TEST_EVERY)
    train, test = (
        Examples(inputs=everything.inputs[part], labels=everything.labels[part])
        for part in (slice(first), slice(first, None))
    )
    return Found(train=train, test=test, paths=(path,))


def _stream(path: Path) -> NDArray[Any]:
    size_bytes = path.stat().st_size
    if path.suffix == ".npy":
        check_memory(size_bytes, path.name)
        with path.open("rb") as file:
            tokens = read_array(file, size_bytes=size_bytes, name=path.name)
        if tokens.ndim != 1:
            raise ValueError(
                f"{path.name}: expected one stream of tokens, got shape {tokens.shape}"
            )
    else:
        if size_bytes % _TOKEN.itemsize:
            expected = f"{path.name}: expected tokens of 16 bits"
            raise ValueError(f"{expected}, got an odd number of bytes, {size_bytes}")
        check_memory(size_bytes // _TOKEN.itemsize * _BYTES_PER_TOKEN, path.name)
        tokens = np.fromfile(path, _TOKEN)
    if len(tokens) and (tokens.min() < 0 or tokens.max() >= MOST_CLASSES):
        got = f"got {tokens.min()} to {tokens.max()}"
        raise ValueError(f"{path.name}: expected tokens from 0 to {MOST_CLASSES - 1}, {got}")
    return tokens


def _examples(tokens: NDArray[Any], sequence_length: int, *, name: str, least: int) -> Examples:
    count = (len(tokens) - 1) // sequence_length
    if count < least:
        needed = least * sequence_length + 1
        expected = f"{name}: expected at least {needed} tokens for sequences of {sequence_length}"
        raise ValueError(f"{expected}, got {len(tokens)}")
    length = count * sequence_length
    shape = (count, sequence_length)
    return Examples(
        inputs=np.ascontiguousarray(tokens[:length], np.int32).reshape(shape),
        labels=np.ascontiguousarray(tokens[1 : length + 1], np.int64).reshape(shape),
    )
