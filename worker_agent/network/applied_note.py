"""A file that records which network settings are applied, until they are undone.

The agent, the agent after a restart, its watchdog or a person undoes it by this note and under its
lock. The note's number distinguishes it from a later one of the same agent.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from farm.errors import EmulationFailed, InvalidSpec
from farm.values.codec import from_text, to_json
from worker_agent.network.emulators.site import Site

# The holder asks the kernel for some milliseconds of work.
_LOCK_LIMIT_S = 10.0
_LOCK_RETRY_S = 0.02
NETWORK = "applied_network"
GATE = "closed_ports"


def open_lock(path: Path) -> IO[bytes]:
    """Open a file to lock it. Raises OSError.

    It is never written to: a disk that has become read-only must not keep a network shaped, nor a
    file that root has made by hand its agent from locking it.
    """
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644), "rb")


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedNote:
    number: str
    emulator: str
    site: Site

    @classmethod
    def new(cls, emulator: str, site: Site) -> AppliedNote:
        """Return one with a number that no other has."""
        return cls(number=uuid.uuid4().hex, emulator=emulator, site=site)


class NoteFile:
    """A note of one state directory. Whatever reads or changes it does so under `locked`.

    Of what is applied for one rank the network's shape and the closed ports are noted apart.
    """

    def __init__(self, state_dir: str, name: str = NETWORK) -> None:
        self.name = name
        self._path = Path(state_dir) / name

    @property
    def is_there(self) -> bool:
        """Whether something may be applied; it may be undone before the caller reads the answer."""
        return self._path.exists()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep every other process that would apply or undo waiting. Raises OSError."""
        deadline = time.monotonic() + _LOCK_LIMIT_S
        with open_lock(self._path.with_suffix(".lock")) as lock:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(_LOCK_RETRY_S)
            yield

    def read(self) -> AppliedNote | None:
        """Return the note, or None where nothing is applied. Raises EmulationFailed, OSError."""
        try:
            return from_text(AppliedNote, self._path.read_bytes())
        except FileNotFoundError:
            return None
        except InvalidSpec as error:
            raise EmulationFailed(
                f"{self._path} is damaged ({error}): look at what is shaped (tc qdisc) or closed "
                "(nft list tables), remove it by hand, and then this file"
            ) from None

    def write(self, note: AppliedNote) -> None:
        """Bring it to the disk, whole or not at all. Raises OSError."""
        fresh = self._path.with_suffix(".new")
        with fresh.open("w") as file:
            json.dump(to_json(note), file)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)
