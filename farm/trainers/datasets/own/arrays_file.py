"""Reads images and labels from a `.npz` file, as Keras writes its data sets, or two `.npy` files.

A header may claim any size, and a kilobyte of a zip file may unpack to a megabyte, so sizes are
checked before anything is read. Pickles, which are programs, are never read.
"""

from __future__ import annotations

import lzma
import math
import struct
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from farm.configuration.own_data import MOST_CLASSES
from farm.text.display import byte_count
from farm.trainers.contracts import Examples
from farm.trainers.datasets.arrays import check_memory, split
from farm.trainers.datasets.locations import Found

# Of data that has no test split of its own.
TEST_EVERY = 10
_SPLITS = (("x_train", "y_train"), ("x_test", "y_test"))
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}

# The header is an expression of Python, whose parser has its own ways to say that one is too deep.
_NO_HEADER = (
    *(KeyError, ValueError, SyntaxError, TypeError, tokenize.TokenError),
    *(MemoryError, RecursionError),
)


def read_npz(path: Path) -> Found:
    """Read `x_train`, `y_train`, `x_test` and `y_test`.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no such file, or one that would not fit into this machine's memory.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            keys = [key for pair in _SPLITS for key in pair]
            known = {member.filename: member for member in archive.infolist()}
            members = [known.get(f"{key}.npy") for key in keys]
            if None in members:
                expected = f"{path.name}: expected arrays {', '.join(keys)}"
                raise ValueError(
                    f"{expected}, got {', '.join(map(repr, list(known)[:10])) or 'none'}"
                )
            check_memory(sum(m.file_size for m in members if m), path.name)
            arrays = {}
            for key, member in zip(keys, members, strict=True):
                assert member is not None
                with archive.open(member) as file:
                    arrays[key] = read_array(file, size_bytes=member.file_size, name=key)
    # Of zipfile's own, NotImplementedError is of a compression that is not there, and RuntimeError
    # of a password that it lacks.
    except (
        *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error),
        *(NotImplementedError, RuntimeError, EOFError),
    ) as error:
        raise ValueError(
            f"{path.name}: expected a file that numpy.savez wrote ({error})"
        ) from error
    train, test = (labelled(arrays, *keys) for keys in _SPLITS)
    return Found(train=train, test=test, paths=(path,))


def read_npy_pair(folder: Path) -> Found:
    """Read `inputs.npy` and `labels.npy`, of which every tenth example is for testing.

    Raises:
        OSError: one cannot be read.
        ValueError: they are no such files, or have fewer than ten examples.
    """
    names = ("inputs.npy", "labels.npy")
    paths = [folder / name for name in names]
    for path in paths:
        if not path.is_file():
            raise ValueError(f"{path.name}: expected an ordinary file beside {' and '.join(names)}")
    check_memory(sum(path.stat().st_size for path in paths), folder.name)
    arrays = {}
    for path in paths:
        with path.open("rb") as file:
            size_bytes = path.stat().st_size
            arrays[path.name] = read_array(file, size_bytes=size_bytes, name=path.name)
    everything = labelled(arrays, *names)
    is_test = np.arange(len(everything.labels)) % TEST_EVERY == TEST_EVERY - 1
    if not is_test.any():
        got = len(everything.labels)
        raise ValueError(f"{names[0]}: expected at least {TEST_EVERY} examples, got {got}")
    train, test = (
        Examples(inputs=everything.inputs[chosen], labels=everything.labels[chosen])
        for chosen in (~is_test, is_test)
    )
    return Found(train=train, test=test, paths=(folder,))


def labelled(arrays: dict[str, NDArray[Any]], of_images: str, of_labels: str) -> Examples:
    """Check images and their labels, and bring them into the common form.

    Raises:
        ValueError: they are no images with labels; names the array.
    """
    images, labels = arrays[of_images], arrays[of_labels]
    if images.dtype != np.uint8:
        expected = f"{of_images}: expected images as uint8, from 0 to 255, got {images.dtype}"
        raise ValueError(f"{expected}; convert them with astype('uint8')")
    if images.ndim not in (3, 4) or 0 in images.shape:
        expected = "images (n, height, width) or (n, height, width, channels)"
        raise ValueError(f"{of_images}: expected {expected}, got shape {images.shape}")
    count = len(images)
    if labels.shape not in ((count,), (count, 1)):
        got = f"got shape {labels.shape}"
        raise ValueError(f"{of_labels}: expected {count} labels, one for each image, {got}")
    if labels.min() < 0 or labels.max() >= MOST_CLASSES:
        got = f"got {labels.min()} to {labels.max()}"
        raise ValueError(f"{of_labels}: expected labels from 0 to {MOST_CLASSES - 1}, {got}")
    return split(images, labels)


def read_array(file: IO[bytes], *, size_bytes: int, name: str) -> NDArray[Any]:
    """Read one array of whole numbers in NumPy's own format, of a file of that size.

    Raises:
        ValueError: it is none, or not as large as its header says.
    """
    try:
        read_header = _HEADERS[np.lib.format.read_magic(file)]
        shape, _, dtype = read_header(file)
    except _NO_HEADER as error:
        why = str(error) or type(error).__name__
        raise ValueError(f"{name}: expected an array that numpy.save wrote ({why})") from error
    if dtype.kind not in "iu":
        expected = f"{name}: expected whole numbers, got {dtype}"
        raise ValueError(f"{expected}; images are uint8, from 0 to 255")
    if min(shape, default=0) < 0 or file.tell() + math.prod(shape) * dtype.itemsize != size_bytes:
        got = f"{byte_count(size_bytes)} for shape {shape} of {dtype}"
        raise ValueError(f"{name}: expected a file as large as its header says, got {got}")
    file.seek(0)
    try:
        array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
    # Of an extent that is no number of bytes, and hides behind one of 0; or of True as an extent.
    except (OverflowError, TypeError) as error:
        got = f"got {shape} ({error})"
        raise ValueError(f"{name}: expected the shape of an array, {got}") from error
    return array
