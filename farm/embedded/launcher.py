"""Runs a program that ends when its parent ends, even when that is killed.

It is run as a script by its path, and imports as little as possible: `launcher.py PARENT PROGRAM
ARG...`. The kernel sends the death signal when the *thread* that started this process ends, so
children are started from the main thread. The alternative, a `preexec_fn`, runs Python between fork
and exec and can deadlock if there are other threads.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Ask for SIGTERM at the parent's death, then execute the program in place."""
    parent = int(sys.argv[1])
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        sys.exit("launcher: the parent is already gone")
    os.execv(sys.argv[2], sys.argv[2:])  # noqa: S606 (its parent is ours)


if __name__ == "__main__":
    main()
