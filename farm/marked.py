"""Processes that carry a mark: a variable that they and all that they start have in common.

Unlike a pid file a mark cannot name a stranger, and whatever session or parent a process moves to,
it keeps what it was started with.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import os
import select
import signal
import time
from collections.abc import Collection
from pathlib import Path
from types import TracebackType

_PROC = Path("/proc")
_EXITING, _KERNEL_THREAD = 0x00000004, 0x00200000  # PF_EXITING, PF_KTHREAD
# Fields of /proc/PID/stat behind the name, see proc_pid_stat(5).
_STATE, _FLAGS, _START_CODE, _ENV_START, _ENV_END = 0, 6, 23, 47, 48
# Linux starts no program with more than 6 MiB of words and environment.
_MOST_BYTES = 8 * 2**20
_LOOK_AGAIN_S = 0.0002
_DECIDED_WITHIN_S = 2.0


class Lack(enum.Enum):
    """Why a thread shows no environment."""

    NONE = "its process has none, or none for us"
    ENDED = "it has ended, as others of its process need not have"
    CHANGING = "it ends just now, or becomes another program"


@dataclasses.dataclass(frozen=True)
class _Held:
    handle: int
    signals: set[signal.Signals] = dataclasses.field(default_factory=set)


class MarkedProcesses:
    """Processes started with NAME=VALUE, other than our own, found and held until they end.

    Held by a handle (pidfd_open(2), Linux 5.3), one is not taken for another that has its number
    since. And it has ended only when no thread of it is left and its memory and ports are free: its
    mark is gone before.
    """

    def __init__(self, name: str, value: str, *, spare: Collection[int] = ()) -> None:
        """`spare`: pids that are none of them, whatever their mark."""
        self._mark = f"{name}={value}".encode()
        self._spare = {os.getpid(), *spare}
        self._held: dict[int, _Held] = {}

    def __enter__(self) -> MarkedProcesses:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for pid in list(self._held):
            self._let_go(pid)

    def living(self) -> list[int]:
        """Look once; return the pids of all found so far that have not ended.

        Those whose environment we may not read are not found; whoever may trace all finds
        everyone's.
        """
        self._let_go_of_ended(within_s=0.0)
        deadline = time.monotonic() + _DECIDED_WITHIN_S
        known = {*self._spare, *self._held}
        for process in _PROC.iterdir():
            if process.name.isdigit() and int(process.name) not in known:
                self._hold_if_marked(process, deadline_s=deadline)
        return sorted(self._held)

    def send(self, number: signal.Signals) -> None:
        """Send it to each one found that has not got it yet."""
        for held in self._held.values():
            if number not in held.signals:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(held.handle, number)
                held.signals.add(number)

    def wait(self, timeout_s: float) -> None:
        """Return when all found so far have ended, or when that has taken too long."""
        deadline = time.monotonic() + timeout_s
        while self._held and (left_s := deadline - time.monotonic()) > 0:
            self._let_go_of_ended(within_s=left_s)

    def _hold_if_marked(self, process: Path, *, deadline_s: float) -> None:
        if not self._is_marked(process, deadline_s=deadline_s):
            return
        pid = int(process.name)
        with contextlib.suppress(ProcessLookupError):
            self._held[pid] = _Held(os.pidfd_open(pid))
            # It may have ended meanwhile, and the handle be of another.
            if not self._is_marked(process, deadline_s=deadline_s):
                self._let_go(pid)

    def _is_marked(self, process: Path, *, deadline_s: float) -> bool:
        return self._mark in _environment(process, deadline_s=deadline_s).split(b"\0")

    def _let_go_of_ended(self, *, within_s: float) -> None:
        """Wait until one has ended, and let go of each that has."""
        ends = select.poll()
        pids = {held.handle: pid for pid, held in self._held.items()}
        for handle in pids:
            ends.register(handle, select.POLLIN)
        for handle, _ in ends.poll(within_s * 1e3) if pids else ():
            self._let_go(pids[handle])

    def _let_go(self, pid: int) -> None:
        os.close(self._held.pop(pid).handle)


def processes_marked(name: str, value: str) -> list[int]:
    """Return the pids of living processes started with NAME=VALUE, but not our own."""
    with MarkedProcesses(name, value) as found:
        return found.living()


def lack_of_environment(stat: bytes) -> Lack:
    """Tell why a thread shows none.

    `stat`: its /proc/PID/stat, of which the name may hold any bytes, spaces and parentheses too.

    One that becomes another program has none until that is there, and it may have come between
    opening and reading. The kernel notes where a program's code begins after it has noted where
    its environment ends.
    """
    fields = stat.rpartition(b")")[2].split()
    if fields[_STATE] in (b"Z", b"X"):
        return Lack.ENDED
    flags = int(fields[_FLAGS])
    if flags & _KERNEL_THREAD:
        return Lack.NONE
    has_program = fields[_START_CODE] != b"0" and fields[_ENV_START] == fields[_ENV_END]
    return Lack.NONE if has_program and not flags & _EXITING else Lack.CHANGING


def _environment(process: Path, *, deadline_s: float) -> bytes:
    """Return what a process was started with; nothing of one that has ended or is closed to us.

    A process that becomes another program shows neither environment nor command line for some
    tenths of a millisecond, and one that ends none while it still frees its memory. Taken for
    unmarked then, it would go on with cores that are called free. `deadline_s`: of the monotonic
    clock, by which that is not waited for any more.
    """
    while True:
        found = _environment_or_lack(process)
        if found in (Lack.ENDED, Lack.CHANGING):
            found = _of_its_threads(process)
        if isinstance(found, bytes):
            return found
        if found is not Lack.CHANGING or time.monotonic() > deadline_s:
            return b""
        time.sleep(_LOOK_AGAIN_S)


def _of_its_threads(process: Path) -> bytes | Lack:
    """Ask them all: the first may have ended before the others, and any may start a program."""
    lacks = set()
    # It may end meanwhile.
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for thread in (process / "task").iterdir():
            found = _environment_or_lack(thread)
            if isinstance(found, bytes):
                return found
            lacks.add(found)
    return Lack.CHANGING if Lack.CHANGING in lacks else Lack.ENDED


def _environment_or_lack(thread: Path) -> bytes | Lack:
    try:
        if environment := _read(f"{thread}/environ"):
            return environment
    except PermissionError:
        return Lack.NONE
    except (FileNotFoundError, ProcessLookupError):
        pass  # it has ended, or shows no memory any more, which its state tells
    try:
        return lack_of_environment(_read(f"{thread}/stat"))
    except (FileNotFoundError, ProcessLookupError):
        return Lack.ENDED


def _read(path: str) -> bytes:
    """Read in one piece: of one that becomes another between two the rest would be missing."""
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, _MOST_BYTES)
    finally:
        os.close(file)
