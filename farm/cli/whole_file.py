"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from farm.errors import FarmError


def write_whole(path: Path, content: bytes) -> None:
    """Write beside the target and rename, so that no reader sees half a file.

    Raises:
        FarmError: it cannot be written.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        try:
            with partial.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise FarmError(f"{path} cannot be written: {error.strerror or error}") from error
