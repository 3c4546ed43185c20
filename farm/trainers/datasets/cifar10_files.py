"""Reads CIFAR-10's pickles from a folder or the tar file, without executing them.

A pickle is a program, and NumPy's classes are not safe against it: a forged state of `dtype` turns
an array of bytes into an array of objects, with the bytes as pointers. So the pickle cannot reach
NumPy. Its description of an array is recorded here, checked, and then turned into an array.
"""

from __future__ import annotations

import pickle
import tarfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from farm.trainers.contracts import Examples
from farm.trainers.datasets.arrays import split
from farm.trainers.datasets.locations import Found

FOLDER_NAME = "cifar-10-batches-py"
BATCH_NAMES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
# As published, as Keras 3 unpacks it, and the batches lying bare.
_FOLDERS = (FOLDER_NAME, f"cifar-10-batches-py-target/{FOLDER_NAME}", "")
_ARCHIVE_NAMES = (
    "cifar-10-python.tar.gz",
    "cifar-10-batches-py.tar.gz",
    "cifar-10-batches-py-target_archive",
)
# The published batches have 31 MB. What is much larger would only fill the memory.
_MAX_BATCH_BYTES = 64 << 20


def read_cifar10(place: Path) -> Found | None:
    """Return CIFAR-10 from `place`, or None when it is not there.

    Raises:
        OSError, ValueError, KeyError, EOFError: the files are there and broken.
    """
    for folder in _FOLDERS:
        paths = tuple(place / folder / name for name in BATCH_NAMES)
        if all(path.is_file() for path in paths):
            batches = []
            for path in paths:
                _check_size(path.name, path.stat().st_size)
                with path.open("rb") as file:
                    batches.append(read_batch(file))
            return _found(batches, paths)
    for name in _ARCHIVE_NAMES:
        if (place / name).is_file():
            return _found(_read_archive(place / name), (place / name,))
    return None


def read_batch(file: IO[bytes]) -> Examples:
    """Read one batch: `data` of (n, 3072) bytes, red plane first, and `labels`.

    Raises:
        ValueError: not such a pickle, or one that names anything but arrays.
    """
    try:
        content = _ArraysOnly(file, encoding="bytes").load()
    except (pickle.UnpicklingError, AttributeError, IndexError, TypeError, MemoryError) as error:
        raise ValueError(f"expected a pickled CIFAR-10 batch: {error}") from error
    if not isinstance(content, dict) or not {b"data", b"labels"} <= content.keys():
        raise ValueError("expected a pickled table with data and labels")
    data, labels = content[b"data"], content[b"labels"]
    # A list of lists that hold each other could be written short and be endless.
    if not isinstance(labels, list) or not all(isinstance(label, int) for label in labels):
        raise ValueError("expected labels to be a list of whole numbers")
    planes = _bytes_of(data).reshape(-1, 3, 32, 32)
    return split(planes.transpose(0, 2, 3, 1), np.asarray(labels, dtype=np.int64))


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str) -> Any:
        stand_in = _STAND_INS.get((module_name, global_name))
        if stand_in is None:
            raise pickle.UnpicklingError(f"{module_name}.{global_name} is not allowed here")
        return stand_in


def _read_archive(path: Path) -> list[Examples]:
    batches = []
    try:
        with tarfile.open(path) as archive:
            for name in BATCH_NAMES:
                member = archive.getmember(f"{FOLDER_NAME}/{name}")
                _check_size(name, member.size)
                file = archive.extractfile(member) if member.isfile() else None
                if file is None:
                    raise ValueError(f"{path.name}: {name} is no plain file")
                batches.append(read_batch(file))
    except (tarfile.TarError, zlib.error) as error:
        raise ValueError(f"{path.name}: {error}") from error
    return batches


def _check_size(name: str, size_bytes: int) -> None:
    if size_bytes > _MAX_BATCH_BYTES:
        raise ValueError(f"{name}: expected at most {_MAX_BATCH_BYTES} bytes, got {size_bytes}")


def _found(batches: list[Examples], paths: tuple[Path, ...]) -> Found:
    train = Examples(
        inputs=np.concatenate([batch.inputs for batch in batches[:-1]]),
        labels=np.concatenate([batch.labels for batch in batches[:-1]]),
    )
    return Found(train=train, test=batches[-1], paths=paths)


class _PickledType:
    """In the place of `numpy.dtype`, of which images need one."""

    def __init__(self, name: object, *_: object) -> None:
        if name not in ("u1", b"u1"):
            raise pickle.UnpicklingError(f"expected an array of bytes, got one of {name!r}")

    def __setstate__(self, state: object) -> None:
        """Pass over the state, which for bytes says nothing."""


class _PickledArray:
    """In the place of `numpy.ndarray`, whose state brings the content."""

    def __init__(self, *_: object) -> None:
        self.content: NDArray[np.uint8] = np.zeros(0, np.uint8)

    def __setstate__(self, state: object) -> None:
        match state:
            case (int(), tuple(shape), _PickledType(), bool() | int() as is_fortran, bytes(data)):
                flat = np.frombuffer(data, np.uint8)
                self.content = flat.reshape(shape, order="F" if is_fortran else "C")
            case _:
                raise pickle.UnpicklingError("expected the state of an array of bytes")


def _bytes_of(value: object) -> NDArray[np.uint8]:
    """Return what a pickled array held. Raises ValueError: it is none."""
    match value:
        case _PickledArray(content=content):
            return content
    raise ValueError(f"expected an array of bytes, got a {type(value).__name__}")


def _encode(text: object, encoding: object) -> bytes:
    """In the place of `_codecs.encode`, by which Python 3 writes bytes in an old pickle."""
    if not isinstance(text, str) or encoding not in ("latin1", b"latin1"):
        raise pickle.UnpicklingError(f"expected a text in latin1, got {encoding!r}")
    return text.encode("latin1")


_STAND_INS: dict[tuple[str, str], object] = {
    ("numpy.core.multiarray", "_reconstruct"): _PickledArray,
    ("numpy._core.multiarray", "_reconstruct"): _PickledArray,
    ("numpy", "ndarray"): _PickledArray,
    ("numpy", "dtype"): _PickledType,
    ("_codecs", "encode"): _encode,
}
