"""Reads a data set of a user's own, in whatever form it is."""

from __future__ import annotations

from pathlib import Path

from farm.trainers.datasets.found import Found
from farm.trainers.datasets.own.arrays_file import read_npz


def read_files(path: Path) -> Found | None:
    """Return both splits; None: there is nothing of that name.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no data set.
    """
    if not path.exists():
        return None
    if path.suffix == ".npz" and path.is_file():
        return read_npz(path)
    raise ValueError(f"{path.name}: expected a file that ends in .npz")
