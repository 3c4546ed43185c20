"""Stores the highest fencing token (the number of an attempt) on disk; lower ones are refused."""

from __future__ import annotations

import enum
import os
import re
from pathlib import Path

from farm.errors import InvalidSpec
from farm.messages.agents import AgentState


class Admission(enum.Enum):
    """What to do with a `start_rank`."""

    START = "start"
    DUPLICATE = "duplicate"  # served or refused already: say nothing again
    TOO_LOW = "too_low"  # a newer attempt was seen here: the sender has lost its lease
    UNAVAILABLE = "unavailable"  # busy, spool full or leaving


def admit(
    token: int, *, highest_token: int, seen_tokens: frozenset[int], state: AgentState
) -> Admission:
    """Decide on a `start_rank` of `token`.

    The token itself being the highest means that it was seen: in this life or, when it is not
    among `seen_tokens`, in an earlier one, whose rank is gone. It is never started again.
    """
    if token in seen_tokens or token == highest_token:
        return Admission.DUPLICATE
    if token < highest_token:
        return Admission.TOO_LOW
    return Admission.START if state is AgentState.IDLE else Admission.UNAVAILABLE


class TokenFile:
    """The highest token, raised only after it is safely on disk."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.highest = self._read()

    def _read(self) -> int:
        """Return what is on disk. Guessing lower would let a rank start that is long over."""
        try:
            text = self._path.read_bytes().strip()
        except FileNotFoundError:
            return 0
        if not re.fullmatch(rb"[0-9]{1,19}", text):
            raise InvalidSpec(
                str(self._path),
                text[:20].decode(errors="replace"),
                "a number: write that of this agent's last attempt, which the farm's pages show",
            )
        return int(text)

    def raise_to(self, token: int) -> None:
        """Remember `token` if it is higher; survives a loss of power once this returns."""
        if token > self.highest:
            self._write(token)
            self.highest = token

    def write_again(self) -> None:
        """Write what is known into a folder that lost it. Raises OSError."""
        if self.highest:
            self._write(self.highest)

    def _write(self, token: int) -> None:
        beside = self._path.with_suffix(".new")
        with beside.open("w") as file:
            file.write(f"{token}\n")
            file.flush()
            os.fsync(file.fileno())
        beside.rename(self._path)
        sync_folder(self._path.parent)


def sync_folder(folder: Path) -> None:
    """Make creations, renames and deletions in a folder survive a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
