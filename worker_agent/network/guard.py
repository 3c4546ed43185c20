"""Records each change to the network on disk, and starts a watchdog that undoes it.

The agent, its watchdog or a person undoes the change, also after a restart, by reading this note
under its lock. The note's number distinguishes it from later notes of the same agent.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import select
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from farm.errors import EmulationFailed, InvalidSpec
from farm.values.codec import from_text, to_json
from worker_agent.network import watchdog
from worker_agent.network.emulators.contracts import Site
from worker_agent.trainer_process import privilege
from worker_agent.trainer_process.environment import plain_environment

logger = logging.getLogger(__name__)

_START_LIMIT_S = 10.0
_END_LIMIT_S = 5.0
# The holder asks the kernel for some milliseconds of work.
_LOCK_LIMIT_S = 10.0
_LOCK_RETRY_S = 0.02
NETWORK = "applied_network"
GATE = "closed_ports"


def open_lock(path: Path) -> IO[bytes]:
    """Open a file to lock it. Raises OSError.

    It is never written to. So a disk that has become read-only cannot keep a network shaped, and a
    file that root has created can be locked by the agent.
    """
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644), "rb")


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedNote:
    number: str
    emulator: str
    site: Site

    @classmethod
    def new(cls, emulator: str, site: Site) -> AppliedNote:
        """Return a note with a unique number."""
        return cls(number=uuid.uuid4().hex, emulator=emulator, site=site)


class NoteFile:
    """A note of one state directory.

    Read or change it only under `locked`. A rank's network profile and its closed ports have
    separate notes.
    """

    def __init__(self, state_dir: str, name: str = NETWORK) -> None:
        self.name = name
        self._path = Path(state_dir) / name

    @property
    def is_there(self) -> bool:
        """Whether something may be applied; it may be undone before the caller uses the result."""
        return self._path.exists()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock out other processes that would apply or undo. Raises OSError."""
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
        """Write it to disk atomically. Raises OSError."""
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


class Guard:
    """The agent's end of the process that undoes a note when the agent cannot."""

    def __init__(self, notes: NoteFile, note: AppliedNote, *, limit_s: float) -> None:
        """Write the note, start the watchdog and wait until it guards. Raises OSError."""
        self.number = note.number
        with notes.locked():
            notes.write(note)
        state_dir = note.site.state_dir
        undo = (sys.executable, "-P", "-m", "worker_agent.network.undo", state_dir, note.number)
        log_file = Path(state_dir) / f"{notes.name}.log"
        with log_file.open("wb") as log, privilege.handed_on():
            self._process = subprocess.Popen(
                (sys.executable, "-I", "-S", watchdog.__file__, f"{limit_s:.0f}", *undo),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=plain_environment(),
                cwd="/",
                process_group=0,  # Ctrl-C is not for it; of another session it would be killed
                bufsize=0,
            )
        assert self._process.stdout is not None
        with self._process.stdout as output:
            readable, _, _ = select.select([output], [], [], _START_LIMIT_S)
            if not readable or output.read(1) != watchdog.ALIVE:
                self._process.kill()
                self._process.wait(timeout=_END_LIMIT_S)
                raise OSError(f"it did not start: see {log_file}")

    @property
    def pid(self) -> int:
        return self._process.pid

    def end(self, undo: Callable[[], object], *, remove_settings: Callable[[], object]) -> None:
        """Undo the recorded change, and end the watchdog.

        Raises:
            EmulationFailed: `undo` failed. Then `remove_settings` was tried, with or without the
                note, and the watchdog goes on trying.
        """
        try:
            undo()
        except EmulationFailed:
            try:
                remove_settings()
            finally:
                # Let it undo now, and try until it succeeds.
                assert self._process.stdin is not None
                self._process.stdin.close()
                threading.Thread(target=self._process.wait, name="watchdog", daemon=True).start()
            raise
        self._release()

    def _release(self) -> None:
        """Tell the watchdog that nothing is left to undo, and wait for its end."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(watchdog.RELEASE)
        except BrokenPipeError:
            logger.debug("watchdog had ended already", extra={"pid": self.pid})
        self._process.stdin.close()
        try:
            self._process.wait(timeout=_END_LIMIT_S)
        except subprocess.TimeoutExpired:
            logger.warning("watchdog does not end", extra={"pid": self.pid})
