"""Processes that tests start end with the process of the tests, however that ends.

A guard waits for its end and then ends everything that has its mark. The death signal of the kernel
(PR_SET_PDEATHSIG) would come with the end of the thread that starts a process, and faults are
threads; and what a farm's processes have started would live on.
"""

from __future__ import annotations

import atexit
import functools
import os
import select
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

from farm.processes.marked import MarkedProcesses

MARK = "BENCHFARM_TESTS"
# An agent undoes what it has done to the network.
_GRACE_S = 10.0
_KILLED_WITHIN_S = 10.0
_LOOK_EVERY_S = 0.1


@functools.cache
def end_with_this_process() -> None:
    """Have all that this process starts from now on ended with it. Its environment has a mark."""
    mark = uuid.uuid4().hex
    guard = subprocess.Popen(
        [sys.executable, "-m", "tests.services.orphans", str(os.getpid()), mark],
        cwd=Path(__file__).parents[2],
        env=unmarked(),
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.environ[MARK] = mark
    atexit.register(_dismiss, guard)


def unmarked() -> dict[str, str]:
    """Return this environment for a process that ends by itself."""
    return {name: value for name, value in os.environ.items() if name != MARK}


def _dismiss(guard: subprocess.Popen[bytes]) -> None:
    guard.kill()
    guard.wait(timeout=60)


def main() -> None:
    """Wait for the end of a process, and end what has its mark: `PID MARK`."""
    parent, mark = int(sys.argv[1]), sys.argv[2]
    if os.getppid() == parent:
        ends = select.poll()
        ends.register(os.pidfd_open(parent), select.POLLIN)
        if os.getppid() == parent:  # or the handle may be another's
            ends.poll()
    with MarkedProcesses(MARK, mark) as marked:
        for numbers, within_s in (
            ((signal.SIGTERM, signal.SIGCONT), _GRACE_S),  # some are stopped
            ((signal.SIGKILL,), _KILLED_WITHIN_S),
        ):
            deadline = time.monotonic() + within_s
            while any([marked.look(number) for number in numbers]):
                if time.monotonic() >= deadline:
                    break
                marked.wait(_LOOK_EVERY_S)


if __name__ == "__main__":
    main()
