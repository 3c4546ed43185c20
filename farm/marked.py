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
# Linux starts no program with more than 6 MiB of words and environment.
_MOST_BYTES = 8 * 2**20
_LOOK_AGAIN_S = 0.0002
_BECOME_OTHERS_WITHIN_S = 2.0


def processes_marked(name: str, value: str) -> list[int]:
    """Return the pids of living processes started with NAME=VALUE, but not our own.

    Those whose environment we may not read are not found; whoever may trace all finds everyone's.
    """
    mark = f"{name}={value}".encode()
    deadline = time.monotonic() + _BECOME_OTHERS_WITHIN_S
    return [
        int(folder.name)
        for folder in _PROC.iterdir()
        if folder.name.isdigit()
        and int(folder.name) != os.getpid()
        and mark in _environment(folder, deadline_s=deadline).split(b"\0")
    ]


def has_no_environment(stat: bytes) -> bool:
    """Whether a process has none, instead of one that could not be read just now.

    `stat`: its /proc/PID/stat, of which the name may hold any bytes, spaces and parentheses too.

    It could not be if its next program was not there yet, or came between opening and reading. The
    kernel notes where a program's code begins after it has noted where its environment ends.
    """
    fields = stat.rpartition(b")")[2].split()
    if fields[_STATE] in (b"Z", b"X") or int(fields[_FLAGS]) & (_EXITING | _KERNEL_THREAD):
        return True
    return fields[_START_CODE] != b"0" and fields[_ENV_START] == fields[_ENV_END]


def _environment(folder: Path, *, deadline_s: float) -> bytes:
    """Return what a process was started with; nothing of one that has ended or is closed to us.

    A process that becomes another program shows neither environment nor command line for some
    tenths of a millisecond. Taken for unmarked then, it would go on with cores that are called
    free. `deadline_s`: of the monotonic clock, by which that is not waited for any more.
    """
    # They come and go, and those of others are not readable.
    with contextlib.suppress(OSError):
        while True:
            # In one piece: of one that becomes another between two the rest would be missing.
            with (folder / "environ").open("rb", buffering=0) as file:
                environment = file.read(_MOST_BYTES)
            if environment:
                return environment
            if has_no_environment((folder / "stat").read_bytes()) or time.monotonic() > deadline_s:
                break
            time.sleep(_LOOK_AGAIN_S)
    return b""
