"""Undoes the network settings that an agent has recorded as applied.

`python -m worker_agent.network.undo STATE_DIR NUMBER` is what a watchdog runs.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable

from farm.errors import EmulationFailed
from worker_agent.network.emulators import create_emulators
from worker_agent.network.emulators.contracts import Site
from worker_agent.network.guard import GATE, AppliedNote, NoteFile
from worker_agent.network.nft import find_obstacle, nft_table_name, removing_script, run_nft

logger = logging.getLogger(__name__)


def undo_applied(state_dir: str, *, number: str | None = None) -> str | None:
    """Undo it and forget the note; return what was undone, None where nothing was applied.

    With a `number` only that note counts: a later one has a guard of its own.

    Raises:
        EmulationFailed: something may still be shaped; the note stays.
    """
    return _undo(NoteFile(state_dir), state_dir, number, _clear)


def undo_gate(state_dir: str, *, number: str | None = None) -> str | None:
    """Open the ports that were closed for a rank; otherwise as `undo_applied`."""
    notes = NoteFile(state_dir, GATE)
    if not notes.is_there:
        return None  # it is written before anything is closed

    def open_ports(_: AppliedNote) -> str:
        run_nft(removing_script(nft_table_name(state_dir)))
        return "the closing of ports"

    return _undo(notes, state_dir, number, open_ports)


def _undo(
    notes: NoteFile,
    state_dir: str,
    number: str | None,
    remove_settings: Callable[[AppliedNote], str],
) -> str | None:
    """Do what `remove_settings` does and says, under the note's lock, and forget the note."""
    try:
        with notes.locked():
            note = notes.read()
            if note is None or number not in (None, note.number):
                return None
            undone = remove_settings(note)
            notes.remove()
    except OSError as error:
        raise EmulationFailed(f"{state_dir} cannot be used: {error}") from error
    return undone


def _clear(note: AppliedNote) -> str:
    for emulator in create_emulators(note.site):
        if emulator.name == note.emulator:
            emulator.clear()
            return f"{note.emulator} on {note.site.interface}"
    raise EmulationFailed(f"{note.emulator} is applied, which this version does not know")


def undo_all(state_dir: str, *, number: str | None = None) -> list[str]:
    """Undo all noted changes; one that fails does not stop the others. See `undo_applied`."""
    undone, failed = [], []
    for undo in (undo_gate, undo_applied):
        try:
            what = undo(state_dir, number=number)
        except EmulationFailed as error:
            failed.append(str(error))
        else:
            undone += [] if what is None else [what]
    if failed:
        raise EmulationFailed("; ".join(failed))
    return undone


def undo_leftovers(site: Site) -> None:
    """Undo what a crashed agent may have applied, noted or not; failures are logged."""
    try:
        if undo_gate(site.state_dir) is not None:
            logger.warning("ports that a crashed agent had closed were opened")
        if find_obstacle() is None:
            run_nft(removing_script(nft_table_name(site.state_dir)))  # should its note be lost
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


def main(arguments: list[str]) -> int:
    """Return 0 when nothing of the note's is applied any more."""
    state_dir, number = arguments
    try:
        undo_all(state_dir, number=number)
    except EmulationFailed as error:
        print(f"undo: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
