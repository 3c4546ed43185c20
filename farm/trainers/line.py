"""The trainer's end of the pipe to its agent: events out, each written whole or not at all."""

from __future__ import annotations

import os
import threading

from farm.core.trainer_lines import Event, write_event


class Line:
    """Writes events to a file descriptor of its own; safe to use from several threads."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def emit(self, event: Event) -> None:
        """Write one event. Blocks when the agent does not read; raises when it has gone."""
        data = write_event(event).encode()
        with self._lock:
            while data:
                data = data[os.write(self._descriptor, data) :]
