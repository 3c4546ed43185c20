"""Read MNIST's two forms: NumPy's npz, and IDX as first published, plain or gzipped."""

from __future__ import annotations

import gzip
import math
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from farm.trainers.datasets.arrays import split
from farm.trainers.datasets.locations import Found

_IDX_NAMES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
# As other programs unpack them: beside each other, by name, or as torchvision does.
_IDX_FOLDERS = ("", "mnist", "MNIST/raw")
_IDX_UNSIGNED_BYTE = 0x08
# The largest array, of the training images, has 47 MB. A file of zeros packs a thousandfold.
_MAX_ARRAY_BYTES = 64 << 20
_NPZ_KEYS = ("x_train", "y_train", "x_test", "y_test")


def read_mnist(place: Path) -> Found | None:
    """Return MNIST from `place`, or None when it is not there.

    Raises:
        OSError, ValueError, KeyError, EOFError: the files are there and broken.
    """
    for path in (place / "mnist.npz", place / "mnist" / "mnist.npz"):
        if path.is_file():
            return _read_npz(path)
    for folder in _IDX_FOLDERS:
        paths = [_plain_or_gzipped(place / folder, name) for name in _IDX_NAMES]
        present = tuple(path for path in paths if path is not None)
        if len(present) == len(_IDX_NAMES):
            arrays = [read_idx(path) for path in present]
            return Found(train=split(*arrays[:2]), test=split(*arrays[2:]), paths=present)
    return None


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Read one IDX file of unsigned bytes.

    Two zero bytes, the element type, the number of dimensions; each dimension as a big-endian
    unsigned 32-bit number; then the elements, row by row.

    Raises:
        ValueError: not such a file, or of another length than its header says.
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            content = file.read(_MAX_ARRAY_BYTES + 1)
    except zlib.error as error:
        raise ValueError(f"{path.name}: {error}") from error
    if len(content) > _MAX_ARRAY_BYTES:
        raise ValueError(f"{path.name}: expected at most {_MAX_ARRAY_BYTES} bytes")
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != _IDX_UNSIGNED_BYTE:
        raise ValueError(f"{path.name}: expected an IDX file of unsigned bytes")
    dimension_count = content[3]
    header_bytes = 4 + 4 * dimension_count
    if len(content) < header_bytes:
        raise ValueError(
            f"{path.name}: expected {header_bytes} bytes of header, got {len(content)}"
        )
    shape = struct.unpack(f">{dimension_count}I", content[4:header_bytes])
    if len(content) - header_bytes != math.prod(shape):
        raise ValueError(
            f"{path.name}: expected {math.prod(shape)} bytes for shape {shape}, "
            f"got {len(content) - header_bytes}"
        )
    return np.frombuffer(content, np.uint8, offset=header_bytes).reshape(shape)


def _read_npz(path: Path) -> Found:
    try:
        with zipfile.ZipFile(path) as members:
            largest_bytes = max((m.file_size for m in members.infolist()), default=0)
        if largest_bytes > _MAX_ARRAY_BYTES:
            raise ValueError(f"{path.name}: expected arrays of at most {_MAX_ARRAY_BYTES} bytes")
        with np.load(path, allow_pickle=False) as archive:
            arrays: list[NDArray[Any]] = [archive[key] for key in _NPZ_KEYS]
    # An array that claims to be larger than the memory is a MemoryError.
    except (zipfile.BadZipFile, zlib.error, MemoryError) as error:
        raise ValueError(f"{path.name}: {error}") from error
    return Found(train=split(*arrays[:2]), test=split(*arrays[2:]), paths=(path,))


def _plain_or_gzipped(folder: Path, name: str) -> Path | None:
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    return None
