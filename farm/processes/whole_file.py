"""Writes files atomically to a path that the user chose."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from farm.errors import FarmError


def write_whole(path: Path, content: bytes) -> None:
    """Write a file as `open_whole` does.

    Raises:
        FarmError: it cannot be written.
    """
    with open_whole(path) as file:
        file.write(content)


@contextmanager
def open_whole(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that takes the target's place at the end of the block; not after an error.

    It is written beside the target and renamed, so that no reader sees half a file. A link stays,
    and what it leads to is written. A device or a pipe stays, too: the content goes into it.

    Raises:
        FarmError: it cannot be written.
    """
    try:
        try:
            found = path.stat()
        except FileNotFoundError:
            found = None
        if found is not None and stat.S_ISDIR(found.st_mode):
            raise FarmError(f"{path} is a folder: expected the name of a file")
        if found is None or (stat.S_ISREG(found.st_mode) and not _is_printed_to(found)):
            with _replacing(Path(os.path.realpath(path))) as file:
                yield file
        else:
            with path.open("ab") as file:
                yield file
    except OSError as error:
        raise FarmError(f"{path} cannot be written: {error.strerror or error}") from error


def _is_printed_to(found: os.stat_result) -> bool:
    """Whether it is where /dev/stdout or /dev/stderr leads, which would go on to the old file."""
    return any(os.path.samestat(found, os.fstat(fd)) for fd in (1, 2))


@contextmanager
def _replacing(path: Path) -> Iterator[IO[bytes]]:
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with partial.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
