"""Keeps the agent's capabilities and secrets from its trainers.

An agent may have CAP_NET_ADMIN to shape its network. systemd grants it as an ambient capability,
which every child would inherit.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from farm.processes.marked import EMBEDDED_MARK

CAP_NET_ADMIN = 12
# To start processes as another user, to end them, and to find what they have left by its mark.
_FOR_ANOTHER = {"CAP_SETUID": 7, "CAP_SETGID": 6, "CAP_KILL": 5, "CAP_SYS_PTRACE": 19}
_STATUS = Path("/proc/self/status")
_PR_SET_DUMPABLE = 4
_PR_CAP_AMBIENT = 47
_RAISE, _LOWER, _CLEAR_ALL = 2, 3, 4


def missing_for_another_user() -> tuple[str, ...]:
    """Return the capabilities that this process lacks to start, see and end another's processes."""
    lines = _STATUS.read_text().splitlines()
    held = next(int(line.split()[1], 16) for line in lines if line.startswith("CapEff:"))
    return tuple(name for name, number in _FOR_ANOTHER.items() if not held >> number & 1)


def hide() -> None:
    """Let no other process of this user look into this one, whose environment has a password.

    The kernel then lets root alone read /proc/PID/environ and trace it. A child that is another
    program can be looked into again.
    """
    # A farm on one machine, of one user and with a broker on loopback, finds what an earlier one
    # has left by this variable, and so must be able to read it.
    if EMBEDDED_MARK in os.environ:
        return
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def drop_capabilities() -> None:
    """Keep what was granted from all children. Of this thread and those it starts from now on."""
    _ask(_CLEAR_ALL, 0)


@contextmanager
def handed_on() -> Iterator[None]:
    """Let children started in this block, by this thread, configure the network.

    What this process itself may not do it cannot hand on, and need not: root's children may all.
    """
    _ask(_RAISE, CAP_NET_ADMIN)
    try:
        yield
    finally:
        _ask(_LOWER, CAP_NET_ADMIN)


def _ask(action: int, capability: int) -> None:
    ctypes.CDLL(None).prctl(_PR_CAP_AMBIENT, action, capability, 0, 0)
