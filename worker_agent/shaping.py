"""One rank's applied network profile, from before its first trace until after the last.

What outlives the agent's process is written down first, and then guarded by a watchdog.
"""

from __future__ import annotations

import logging
import select
import subprocess
import sys
import threading
import uuid
from pathlib import Path

from farm.core.commands import RankAddress
from farm.core.spec import NetworkProfile
from farm.errors import EmulationFailed
from worker_agent import privilege, watchdog
from worker_agent.applied_note import AppliedNote, NoteFile
from worker_agent.emulators import create_emulators
from worker_agent.emulators.contracts import NetworkEmulator
from worker_agent.emulators.site import Site
from worker_agent.environment import plain_environment
from worker_agent.undo import undo_applied

logger = logging.getLogger(__name__)

_START_LIMIT_S = 10.0
_END_LIMIT_S = 5.0


class Shaping:
    """What one emulator does for one rank."""

    def __init__(self, emulator: NetworkEmulator, site: Site) -> None:
        """Nothing is applied yet; `emulator` was made for `site`."""
        self._emulator = emulator
        self._site = site
        self._number = uuid.uuid4().hex
        self._watchdog: Watchdog | None = None

    @property
    def emulator_name(self) -> str:
        return self._emulator.name

    @property
    def pids(self) -> tuple[int, ...]:
        """Processes of the emulator's, at work for this rank alone."""
        return self._emulator.pids

    def apply(
        self, profile: NetworkProfile, peers: tuple[RankAddress, ...], *, limit_s: float
    ) -> tuple[RankAddress, ...]:
        """Shape the way to the peers; return them as they are reached now.

        What stays when this process dies is undone after `limit_s` at the latest.

        Raises:
            EmulationFailed: it was not applied, or not wholly; `undo` is due.
        """
        if self._emulator.outlives_agent:
            self._guard(limit_s)
        return self._emulator.apply(profile, peers)

    def check(self) -> None:
        """See whether it is still as it was applied. Raises EmulationFailed: it is not."""
        self._emulator.check()

    def undo(self) -> None:
        """Take it away again; what was never applied needs nothing.

        Raises:
            EmulationFailed: something may still be shaped; the watchdog goes on trying.
        """
        guard, self._watchdog = self._watchdog, None
        if guard is None:
            self._emulator.clear()
            return
        try:
            undo_applied(self._site.state_dir, number=self._number)
        except EmulationFailed:
            try:
                self._emulator.clear()  # the network comes first, with or without its note
            finally:
                guard.alarm()
            raise
        guard.release()

    def _guard(self, limit_s: float) -> None:
        """Write down what is about to be applied, and have it watched."""
        notes = NoteFile(self._site.state_dir)
        note = AppliedNote(number=self._number, emulator=self._emulator.name, site=self._site)
        # What an earlier rank could not undo must not be forgotten under a new note.
        undo_applied(self._site.state_dir)
        try:
            with notes.locked():
                notes.write(note)
            self._watchdog = Watchdog(self._site.state_dir, self._number, limit_s=limit_s)
        except OSError as error:
            raise EmulationFailed(f"no network is shaped without a watchdog: {error}") from error


class Watchdog:
    """The agent's end of the process that undoes a note when the agent cannot."""

    def __init__(self, state_dir: str, number: str, *, limit_s: float) -> None:
        """Start it and wait until it guards. Raises OSError."""
        undo = (sys.executable, "-P", "-m", "worker_agent.undo", state_dir, number)
        with (Path(state_dir) / "watchdog.log").open("wb") as log, privilege.handed_on():
            self._process = subprocess.Popen(
                (sys.executable, "-I", "-S", watchdog.__file__, f"{limit_s:.0f}", *undo),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=plain_environment(),
                cwd="/",
                start_new_session=True,
                bufsize=0,
            )
        assert self._process.stdout is not None
        with self._process.stdout as said:
            readable, _, _ = select.select([said], [], [], _START_LIMIT_S)
            if not readable or said.read(1) != watchdog.ALIVE:
                self._process.kill()
                self._process.wait(timeout=_END_LIMIT_S)
                raise OSError(f"it did not start: see watchdog.log in {state_dir}")

    @property
    def pid(self) -> int:
        return self._process.pid

    def release(self) -> None:
        """Tell it that nothing is left to undo, and see it end."""
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

    def alarm(self) -> None:
        """Let it undo now, and try until it succeeds."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        threading.Thread(target=self._process.wait, name="watchdog", daemon=True).start()


def undo_former(site: Site) -> None:
    """Undo what an earlier life may have applied, noted or not; what fails is logged."""
    try:
        undone = undo_applied(site.state_dir)
        if undone is not None:
            logger.warning("network profile of an earlier life was undone: %s", undone)
    except EmulationFailed:
        logger.exception("network profile of an earlier life may still be applied")
    for emulator in create_emulators(site):
        try:
            if emulator.outlives_agent and emulator.probe() is None:
                emulator.clear()
        except EmulationFailed:
            logger.exception("%s may still be shaped", site.interface)
