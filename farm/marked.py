"""Processes that carry a mark: a variable that they and all that they start have in common.

Unlike a pid file a mark cannot name a stranger, and whatever session or parent a process moves to,
it keeps what it was started with.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

_PROC = Path("/proc")
_EXITING, _KERNEL_THREAD = 0x00000004, 0x00200000  # PF_EXITING, PF_KTHREAD
# Fields of /proc/PID/stat behind the name, see proc_pid_stat(5).
_STATE, _FLAGS, _START_CODE, _ENV_START, _ENV_END = 0, 6, 23, 47, 48
_LOOK_AGAIN_S = 0.0002
_BECOMES_ANOTHER_WITHIN_S = 2.0


def processes_marked(name: str, value: str) -> list[int]:
    """Return the pids of this user's living processes started with NAME=VALUE, but not our own."""
    mark = f"{name}={value}".encode()
    return [
        int(folder.name)
        for folder in _PROC.iterdir()
        if folder.name.isdigit()
        and int(folder.name) != os.getpid()
        and mark in _environment(folder).split(b"\0")
    ]


def _environment(folder: Path) -> bytes:
    """Return what a process was started with; nothing of one that has ended or is another user's.

    A process that becomes another program shows neither environment nor command line for some
    tenths of a millisecond. Taken for unmarked then, it would go on with cores that are called
    free.
    """
    deadline = time.monotonic() + _BECOMES_ANOTHER_WITHIN_S
    # They come and go, and those of others are not readable.
    with contextlib.suppress(OSError):
        while True:
            environment = (folder / "environ").read_bytes()
            if environment or _has_none(folder) or time.monotonic() > deadline:
                return environment
            time.sleep(_LOOK_AGAIN_S)
    return b""


def _has_none(folder: Path) -> bool:
    """Whether it has no environment, instead of one that could not be read just now.

    It could not be if its next program was not there yet, or came between opening and reading. The
    kernel notes where a program's code begins after it has noted where its environment ends.
    """
    # The name in parentheses may itself hold spaces and parentheses.
    fields = (folder / "stat").read_text().rpartition(")")[2].split()
    if fields[_STATE] in "ZX" or int(fields[_FLAGS]) & (_EXITING | _KERNEL_THREAD):
        return True
    return fields[_START_CODE] != "0" and fields[_ENV_START] == fields[_ENV_END]
