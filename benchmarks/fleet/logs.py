"""Adds the ends of a fleet's logs to errors, since the folder of the logs is deleted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from farm.errors import FarmError

_LINES = 15
_TAIL_BYTES = 16_384


def tail(log: Path) -> str:
    """Return the last lines of a log; empty where nothing was written."""
    with log.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL_BYTES))
        return "\n".join(file.read().decode(errors="replace").splitlines()[-_LINES:])


@contextmanager
def telling_logs(folder: Path) -> Iterator[None]:
    """Add to an error the end of every log below the folder in which anything stands.

    Raises:
        FarmError: the one that was raised inside, with the logs' ends.
    """
    try:
        yield
    except FarmError as error:
        tails = [(log.relative_to(folder), tail(log)) for log in sorted(folder.rglob("*.log"))]
        log_ends = "".join(f"\n--- {name}\n{end}" for name, end in tails if end)
        raise FarmError(f"{error}{log_ends}") from error
