"""Retries the clean-up of network settings that an earlier rank left.

The note of an emulated network is kept until the network has been restored. A rank that trained
before would be measured through another rank's network, so the agent accepts no rank until then.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from farm.errors import EmulationFailed
from worker_agent.network.guard import GATE, NETWORK, NoteFile
from worker_agent.network.undo import undo_all
from worker_agent.supervisor.events import Post, UndoFinished

logger = logging.getLogger(__name__)

RETRY_S = 2.0


class NetworkCleanup:
    """Used in the supervisor's thread only. Instants are readings of the monotonic clock."""

    def __init__(self, state_dir: Path, post: Post) -> None:
        self._state_dir = str(state_dir)
        self._notes = {
            NoteFile(
                self._state_dir, NETWORK
            ): "a network that an earlier rank asked for is still applied",
            NoteFile(self._state_dir, GATE): "ports of an earlier rank are still closed",
        }
        self._post = post
        self._is_trying = False
        self._try_at = 0.0
        self._reason: str | None = None
        self.trouble: str | None = None

    def tick(self, *, now: float, is_idle: bool) -> None:
        """Retry the clean-up if `is_idle`, that is, if no rank is served: a rank has its own note.

        Waits for a running try, since it would undo the next rank's network, too.
        """
        if not is_idle:
            return
        left = [what for note, what in self._notes.items() if note.is_there]
        if not self._is_trying and not left:
            self.trouble = self._reason = None
            return
        if left:
            self.trouble = f"{'; '.join(left)}: {self._reason or 'it is being undone'}"
        if not self._is_trying and now >= self._try_at:
            self._try_at = now + RETRY_S
            self._start()

    def handle(self, event: UndoFinished, *, now: float) -> None:
        """Handle the end of a try."""
        self._is_trying, self._try_at = False, now + RETRY_S
        if event.error is None:
            logger.warning("network of an earlier rank was undone")
        elif event.error != self._reason:
            logger.error("no rank is taken: %s", event.error)
        self._reason = event.error

    def _start(self) -> None:
        try:
            threading.Thread(target=self._try, name="undo", daemon=True).start()
        except RuntimeError as error:  # no new thread
            self._reason = str(error)
            return
        self._is_trying = True

    def _try(self) -> None:
        error: str | None = None
        try:
            undo_all(self._state_dir)
        except EmulationFailed as failed:
            error = str(failed)
        except Exception as failed:
            logger.exception("network was not undone")
            error = f"{type(failed).__name__}: {failed}"
        self._post(UndoFinished(error=error))
