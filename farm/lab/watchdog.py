"""A separate process that removes a lab whose owner has died.

The owner holds the other end of its standard input, which is closed when the owner ends, however it
ends.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time

from farm.lab.slots import Slot, hold

_ENDS_WITHIN_S = 20.0
_LET_GO_WITHIN_S = 5.0
_POLL_S = 0.02


class LabWatchdog:
    """Watches the lab of a slot, which the caller holds, until the caller stops it."""

    def __init__(self, slot: Slot) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "farm.lab.watchdog", str(slot.number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # Whatever ends the owner's group shall not end it.
            start_new_session=True,
        )

    def call_off(self) -> None:
        """End it: nothing of the lab is left."""
        self._process.kill()

    def leave(self) -> None:
        """Let it remove the lab, unless it was called off, and wait for its end.

        The slot must have been released.
        """
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=_ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(timeout=_ENDS_WITHIN_S)


def main() -> None:
    """Wait for the owner's end."""
    number = int(sys.argv[1])
    sys.stdin.read()
    deadline = time.monotonic() + _LET_GO_WITHIN_S
    # A dying owner may release the slot later than its end of the pipe. A process that has taken
    # the slot meanwhile has also removed this lab.
    while (slot := hold(number)) is None and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    if slot is not None:
        try:
            slot.clear()
        finally:
            slot.release()


if __name__ == "__main__":
    main()
