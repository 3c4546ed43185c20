"""Writes files atomically to where a user wants them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from farm.errors import FarmError


def write_whole(path: Path, content: bytes) -> None:
    """Write beside the target and rename, so that no reader sees half a file.

    A link stays, and what it leads to is written. A device or a pipe stays, too: the content goes
    into it.

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
            _replace(Path(os.path.realpath(path)), content)
        else:
            with path.open("ab") as file:
                file.write(content)
    except OSError as error:
        raise FarmError(f"{path} cannot be written: {error.strerror or error}") from error


def _is_printed_to(found: os.stat_result) -> bool:
    """Whether it is where /dev/stdout or /dev/stderr leads, which would go on to the old file."""
    return any(os.path.samestat(found, os.fstat(fd)) for fd in (1, 2))


def _replace(path: Path, content: bytes) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
