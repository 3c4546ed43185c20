"""Times marks on the GPU by events on its stream.

A host that has issued a step goes on to the next; only the device knows when the step was done. To
wait for it at each mark would slow the training down. Without a GPU there is no such clock.
"""

from __future__ import annotations

import sys
import time
from typing import Any


class DeviceClock:
    """Instants of CLOCK_MONOTONIC in seconds, counted from one at which the device was idle.

    Raises whatever PyTorch raises.
    """

    def __init__(self, cuda: Any) -> None:
        self._cuda = cuda
        cuda.synchronize()
        # The time between two events has the precision of a float of 32 bits: so the times between
        # neighbours are added up.
        self._last = self.record()
        self._last.synchronize()
        self._last_s = time.monotonic()

    def record(self) -> Any:
        """Return an event, behind all that was given to the current stream."""
        event = self._cuda.Event(enable_timing=True)
        event.record()
        return event

    def read(self, event: Any) -> float:
        """Return when the device came to the event, which has to be over. To be asked in order."""
        self._last_s += self._last.elapsed_time(event) / 1000
        self._last = event
        return min(self._last_s, time.monotonic())


def of_this_process() -> DeviceClock | None:
    """Return the clock of the GPU that PyTorch uses here; None: it uses none."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    try:
        return DeviceClock(cuda) if cuda is not None and cuda.is_initialized() else None
    except Exception:  # a device that has no such events
        return None
