"""Applies one rank's network profile, and removes it."""

from __future__ import annotations

import logging

from farm.configuration.spec import NetworkProfile
from farm.errors import EmulationFailed
from farm.messages.commands import RankAddress
from worker_agent.network.emulators import create_emulators
from worker_agent.network.emulators.contracts import NetworkEmulator, Site
from worker_agent.network.guard import AppliedNote, Guard, NoteFile
from worker_agent.network.nft import find_obstacle, removing_script, run_nft, table_of
from worker_agent.network.undo import undo_applied, undo_gate

logger = logging.getLogger(__name__)


class Shaping:
    """What one emulator does for one rank."""

    def __init__(self, emulator: NetworkEmulator, site: Site) -> None:
        """Nothing is applied yet; `emulator` was made for `site`."""
        self._emulator = emulator
        self._site = site
        self._watchdog: Guard | None = None

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
            undo_applied(self._site.state_dir, number=guard.number)
        except EmulationFailed:
            try:
                self._emulator.clear()  # the network comes first, with or without its note
            finally:
                guard.alarm()
            raise
        guard.release()

    def _guard(self, limit_s: float) -> None:
        """Write down what is about to be applied, and have it watched."""
        # What an earlier rank could not undo must not be forgotten under a new note.
        undo_applied(self._site.state_dir)
        note = AppliedNote.new(self._emulator.name, self._site)
        try:
            self._watchdog = Guard(NoteFile(self._site.state_dir), note, limit_s=limit_s)
        except OSError as error:
            raise EmulationFailed(f"no network is shaped without a watchdog: {error}") from error


def undo_leftovers(site: Site) -> None:
    """Undo what a crashed agent may have applied, noted or not; failures are logged."""
    try:
        if undo_gate(site.state_dir) is not None:
            logger.warning("ports that a crashed agent had closed were opened")
        if find_obstacle() is None:
            run_nft(removing_script(table_of(site.state_dir)))  # should its note be lost
    except EmulationFailed:
        logger.exception("ports that a crashed agent had closed may still be closed")
    try:
        undone = undo_applied(site.state_dir)
        if undone is not None:
            logger.warning("network profile of a crashed agent was undone: %s", undone)
    except EmulationFailed:
        logger.exception("network profile of a crashed agent may still be applied")
    for emulator in create_emulators(site):
        try:
            if emulator.outlives_agent and emulator.probe() is None:
                emulator.clear()
        except EmulationFailed:
            logger.exception("%s may still be shaped", site.interface)
