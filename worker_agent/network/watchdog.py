"""Undoes a network profile when its agent has died or its time limit has passed.

`python -I -S watchdog.py LIMIT_S COMMAND...` runs COMMAND once standard input is closed without a
word, or after LIMIT_S, and repeats it until it succeeds. A word on standard input ends the watchdog
at once. It imports nothing of the farm, so it starts fast and stays small, and it ignores the
signals that end its agent.
"""

import os
import select
import signal
import sys
import time

ALIVE = b"+"  # on its standard output, as soon as it guards
RELEASE = b"-"  # on its standard input
_RETRY_S = 1.0
_TRIES = 60


def main(arguments: list[str]) -> int:
    """Return 0 when nothing is left to undo, 1 when the command never succeeded."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    limit_s, command = float(arguments[0]), arguments[1:]
    os.write(1, ALIVE)
    readable, _, _ = select.select([0], [], [], limit_s)
    if readable and os.read(0, 1) == RELEASE:
        return 0
    for _ in range(_TRIES):
        if os.spawnv(os.P_WAIT, command[0], command) == 0:  # noqa: S606 (its agent named it)
            return 0
        time.sleep(_RETRY_S)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
