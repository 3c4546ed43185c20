"""Delays Ctrl-C, SIGTERM and SIGHUP, so that no child process is started unrecorded.

While a `StopSignals` is entered, signals interrupt only its own `pause`.
"""

from __future__ import annotations

import os
import select
import signal
import time
from types import FrameType, TracebackType
from typing import Any

_CAUGHT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(Exception):
    """The user asked for the end by a signal."""


class StopSignals:
    """Counts requests to stop. Enter it in the main thread only."""

    def __init__(self) -> None:
        self.count = 0
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        # A pipe, because setting a threading.Event in a handler can deadlock with its own wait.
        self._reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        for number in _CAUGHT:
            # Under nohup, which ignores SIGHUP, the process should outlive the terminal.
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        os.close(self._reader)
        os.close(self._writer)

    def pause(self, seconds: float) -> None:
        """Sleep; return early only by raising `Stopped`, also when the request came before."""
        deadline = time.monotonic() + seconds
        while not self.count:
            left = deadline - time.monotonic()
            if left <= 0:
                return
            if select.select([self._reader], [], [], left)[0]:
                os.read(self._reader, 64)
        raise Stopped

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        os.write(self._writer, b"!")
