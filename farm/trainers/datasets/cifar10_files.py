"""Read CIFAR-10's pickles, from a folder or from the tar file, without running what they say."""

from __future__ import annotations

import pickle
import tarfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np

from farm.trainers.contracts import Examples
from farm.trainers.datasets.arrays import split
from farm.trainers.datasets.found import Found

FOLDER_NAME = "cifar-10-batches-py"
BATCH_NAMES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
# As published, as Keras 3 unpacks it, and the batches lying bare.
_FOLDERS = (FOLDER_NAME, f"cifar-10-batches-py-target/{FOLDER_NAME}", "")
_ARCHIVE_NAMES = (
    "cifar-10-python.tar.gz",
    "cifar-10-batches-py.tar.gz",
    "cifar-10-batches-py-target_archive",
)
# A pickle is a program. These are the only names that NumPy arrays in one need.
_ALLOWED = frozenset(
    {
        ("numpy.core.multiarray", "_reconstruct"),
        ("numpy._core.multiarray", "_reconstruct"),
        ("numpy", "ndarray"),
        ("numpy", "dtype"),
        ("_codecs", "encode"),
    }
)


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
    except (pickle.UnpicklingError, AttributeError, IndexError, TypeError) as error:
        raise ValueError(f"expected a pickled CIFAR-10 batch: {error}") from error
    if not isinstance(content, dict) or not {b"data", b"labels"} <= content.keys():
        raise ValueError("expected a pickled table with data and labels")
    planes = np.asarray(content[b"data"], dtype=np.uint8).reshape(-1, 3, 32, 32)
    return split(planes.transpose(0, 2, 3, 1), np.asarray(content[b"labels"]))


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str) -> Any:
        if (module_name, global_name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"{module_name}.{global_name} is not allowed here")
        # NumPy 2 has renamed the module that the published files name.
        current_name = module_name.replace("numpy.core", "numpy._core")
        return super().find_class(current_name, global_name)


def _read_archive(path: Path) -> list[Examples]:
    batches = []
    try:
        with tarfile.open(path) as archive:
            for name in BATCH_NAMES:
                member = archive.extractfile(f"{FOLDER_NAME}/{name}")
                if member is None:
                    raise ValueError(f"{path.name}: {name} is no plain file")
                batches.append(read_batch(member))
    except (tarfile.TarError, zlib.error) as error:
        raise ValueError(f"{path.name}: {error}") from error
    return batches


def _found(batches: list[Examples], paths: tuple[Path, ...]) -> Found:
    train = Examples(
        images=np.concatenate([batch.images for batch in batches[:-1]]),
        labels=np.concatenate([batch.labels for batch in batches[:-1]]),
    )
    return Found(train=train, test=batches[-1], paths=paths)
