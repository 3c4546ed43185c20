"""What a process of this machine was started with, as the kernel shows it in /proc."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_EXITING, _KERNEL_THREAD = 0x00000004, 0x00200000  # PF_EXITING, PF_KTHREAD
# Fields of /proc/PID/stat behind the name, see proc_pid_stat(5).
_STATE, _FLAGS, _THREADS, _START_CODE, _ENV_START, _ENV_END = 0, 6, 17, 23, 47, 48
# Linux starts no program with more than 6 MiB of words and environment.
_MOST_BYTES = 8 * 2**20
# A thread may have taken the place of one that ends between two files of theirs; hardly thrice.
_LOOKS_IF_CLOSED = 3
_LIBC = ctypes.CDLL(None)


def environment_of(pid: int, *, owner: int | None = None) -> bytes | None:
    """Return a process's environment, each variable with a zero byte behind; b"" if it shows none.

    `owner`: uid of another user whose processes are to be read as well, with CAP_SETUID.

    None: it cannot be told just now. A process that becomes another program shows neither
    environment nor command line for some tenths of a millisecond, and one that ends shows none
    while its memory is still being freed. Nothing is shown of one that has ended, of the kernel's
    threads, and of other users' processes, unless we may read all.
    """
    process = Path(f"/proc/{pid}")
    try:
        found = _of_thread(process, owner)
    except (FileNotFoundError, ProcessLookupError):
        return b""
    return _of_other_threads(process, owner) if found is None else found


def shows_none_yet(stat: bytes, *, is_closed: bool = False) -> bool:
    """Tell whether a process without an environment is one that cannot be told just now.

    `stat`: its /proc/PID/stat, of which the name may hold any bytes, spaces and parentheses too.
    `is_closed`: its environment could not be opened by us.

    One that becomes another program has none until that is there, and it may have come between
    opening and reading. The kernel notes where a program's code begins after it has noted where
    its environment ends. Of one whose first thread has ended, others may still be at work.
    """
    fields = stat.rpartition(b")")[2].split()
    if fields[_STATE] in (b"Z", b"X"):
        # None are counted when another thread, to become a program, has just taken its place.
        return int(fields[_THREADS]) != 1
    flags = int(fields[_FLAGS])
    if flags & _KERNEL_THREAD:
        return False
    if is_closed or flags & _EXITING:
        # Of whoever ends these files are the kernel's own, and so closed to all but root.
        return bool(flags & _EXITING)
    has_program = fields[_START_CODE] != b"0" and fields[_ENV_START] == fields[_ENV_END]
    return not has_program


def _of_other_threads(process: Path, owner: int | None) -> bytes | None:
    """Ask them where the first one does not tell: it may have ended before the others."""
    shown = []
    try:
        for thread in (process / "task").iterdir():
            if thread.name != process.name:
                if found := _of_thread(thread, owner):
                    return found
                shown.append(found)
    except (FileNotFoundError, ProcessLookupError):
        return None  # one has just ended, or has taken the first one's place
    return None if None in shown or not shown else b""


def _of_thread(thread: Path, owner: int | None) -> bytes | None:
    """As `environment_of`, and raise FileNotFoundError or ProcessLookupError if it has ended."""
    for _ in range(_LOOKS_IF_CLOSED):
        is_closed = False
        try:
            if environment := _read_environment(thread, owner):
                return environment
        except PermissionError:
            if thread.stat().st_uid not in (os.geteuid(), owner):
                return b""
            is_closed = True
        except ProcessLookupError:
            pass  # it has no memory any more
        try:
            if shows_none_yet(_read(f"{thread}/stat"), is_closed=is_closed):
                return None
        except PermissionError:
            return b""
        if not is_closed:
            return b""
    return b""


def _read_environment(thread: Path, owner: int | None) -> bytes:
    try:
        return _read(f"{thread}/environ")
    except PermissionError:
        # CAP_SYS_PTRACE opens no file that only its owner may read.
        if owner is None or thread.stat().st_uid != owner:
            raise
        with _reading_as(owner):
            return _read(f"{thread}/environ")


def _read(path: str) -> bytes:
    """Read in one piece: of one that becomes another between two the rest would be missing."""
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, _MOST_BYTES)
    finally:
        os.close(file)


@contextmanager
def _reading_as(uid: int) -> Iterator[None]:
    """Open files as another user: this thread alone, and nothing else that it does.

    The kernel hides a process that has done so from others of its user, as agents hide themselves.
    """
    own = _LIBC.setfsuid(ctypes.c_uint(uid))
    try:
        yield
    finally:
        _LIBC.setfsuid(ctypes.c_uint(own))
