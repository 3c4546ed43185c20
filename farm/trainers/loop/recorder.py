"""Collects a rank's reports, and sends them between measured steps.

Reading a report takes work on the same machine's cores: agent, broker, store. Epochs of
40 ms that were reported one by one doubled the time of the step after each.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from farm.messages.trainer_lines import Epoch, Progress, StepKind, Steps
from farm.trainers.processes.process import EventWriter

SEND_INTERVAL_S = 1.0
_BEAT_INTERVAL_S = SEND_INTERVAL_S / 4  # of the thread that reports while a rank waits


class StepRecorder:
    """Collects step times, by chunks of one kind, and epochs; sends them once a second at most.

    The sending happens between two steps, never within one.
    """

    def __init__(self, line: EventWriter) -> None:
        self._line = line
        self._sent_at_s = time.monotonic()
        self._complete: list[Steps | Epoch] = []
        self._kind: StepKind | None = None
        self._first_step = 0
        self._begun_s = 0.0
        self._times_s: list[float] = []
        self.step_count = 0

    def add(self, kind: StepKind, *, begun_s: float, time_s: float) -> None:
        """Record one step that began at `begun_s` (CLOCK_MONOTONIC) and took `time_s`."""
        if kind is not self._kind:
            self.close_chunk()
            self._kind, self._first_step, self._begun_s = kind, self.step_count, begun_s
        self._times_s.append(time_s)
        self.step_count += 1
        self.beat()

    def add_epoch(self, epoch: Epoch) -> None:
        """Keep an epoch's summary, to be sent after the steps before it."""
        self.close_chunk()
        self._complete.append(epoch)
        self.beat()

    def close_chunk(self) -> None:
        """End the chunk: the next step does not follow at once, or is of another kind."""
        if self._kind is not None and self._times_s:
            self._complete.append(
                Steps(
                    kind=self._kind,
                    first_step=self._first_step,
                    begun_monotonic_s=self._begun_s,
                    times_s=tuple(self._times_s),
                )
            )
        self._kind, self._times_s = None, []

    def beat(self) -> None:
        """Send what there is and a sign of progress, unless the last second has seen one."""
        if time.monotonic() - self._sent_at_s >= SEND_INTERVAL_S:
            self.flush()
            self._line.emit(Progress(step_count=self.step_count))

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Report progress, at the usual pace, for as long as the block lasts.

        For blocks that only wait and record nothing: the rank that works must report its own
        progress, so that a stall of it is not covered up.
        """
        over = threading.Event()

        def beat() -> None:
            while not over.wait(_BEAT_INTERVAL_S):
                self.beat()

        thread = threading.Thread(target=beat, name="signs of life", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def flush(self) -> None:
        """Send everything recorded so far."""
        self.close_chunk()
        for event in self._complete:
            self._line.emit(event)
        self._complete.clear()
        self._sent_at_s = time.monotonic()
