"""The trainer's end of the pipe to its agent: events out, each written whole or not at all."""

from __future__ import annotations

import os
import threading

from farm.messages.trainer_lines import Event, write_event
from farm.trainers.processes.process import end_fork


class EventWriter:
    """Writes events to a file descriptor of its own; safe to use from several threads."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor
        self._lock = threading.Lock()

    def emit(self, event: Event) -> None:
        """Write one event. Blocks when the agent does not read; raises when it has gone.

        A fork of the trainer that has come so far ends: it has nothing to report.
        """
        if self._descriptor is None:
            end_fork(None)
        data = write_event(event).encode()
        with self._lock:
            while data:
                data = data[os.write(self._descriptor, data) :]

    def close(self) -> None:
        """Give up the descriptor, in a process forked from the trainer."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
