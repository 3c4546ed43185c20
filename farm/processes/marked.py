"""Finds processes by an environment variable that they inherit.

Unlike a pid file, the variable cannot name an unrelated process. It stays with a process whatever
session or parent the process moves to.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import errno
import os
import select
import signal
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

# Every process of a farm on one machine has it, with the farm's folder.
EMBEDDED_MARK = "BENCHFARM_EMBEDDED"
_PROC = Path("/proc")
_SNAPSHOT_LIFETIME_S = 0.0002
# After that long, who still shows no environment is a stranger, such as one stuck in its end.
_DECIDED_WITHIN_S = 2.0
# A process that ends while /proc is read may have started one that was not listed yet.
_MOST_LISTINGS = 10
# Each takes a file descriptor; others have their turn when these have ended.
_MOST_HELD = 100
# Of one that has been reaped, and left a group of that number, kernels have different opinions.
_HAS_ENDED = (errno.ESRCH, errno.EINVAL, errno.ENOENT)
_EXITING, _KERNEL_THREAD = 0x00000004, 0x00200000  # PF_EXITING, PF_KTHREAD
# Fields of /proc/PID/stat behind the name, see proc_pid_stat(5).
_STATE, _FLAGS, _THREADS, _START_CODE, _ENV_START, _ENV_END = 0, 6, 17, 23, 47, 48
# Linux starts no program with more than 6 MiB of words and environment.
_MOST_BYTES = 8 * 2**20
# One thread may replace another while its files are read. Three tries are enough in practice.
_LOOKS_IF_CLOSED = 3
_LIBC = ctypes.CDLL(None)


@dataclasses.dataclass
class _Held:
    handle: int
    since_s: float
    is_marked: bool
    signals: set[signal.Signals] = dataclasses.field(default_factory=set)

    @property
    def is_undecided(self) -> bool:
        return not self.is_marked and time.monotonic() - self.since_s < _DECIDED_WITHIN_S


class MarkedProcesses:
    """Processes started with NAME=VALUE, other than our own, found and held until they end.

    Held by a handle (pidfd_open(2), Linux 5.3), one is not taken for another that has its number
    since. And it has ended only when no thread of it is left and what it held is free: its mark is
    gone before. A process that shows no environment just now is undecided, and held as well, so
    that its end is noticed; for two seconds, since other processes may be stuck in that state.
    """

    def __init__(
        self,
        name: str,
        value: str,
        *,
        owner: int | None = None,
        spare: Callable[[], Collection[int]] = tuple,
    ) -> None:
        """`owner`: uid of another user who may have such processes, as `environment_of` has it.

        `spare` is asked at every look for pids that are none of them, whatever their mark.
        """
        self._mark = f"{name}={value}".encode()
        self._owner = owner
        self._spare = spare
        self._held: dict[int, _Held] = {}
        self._patient_until_s = time.monotonic() + _DECIDED_WITHIN_S

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

    @property
    def pids(self) -> list[int]:
        """Those known to be marked that had not ended at the last look or wait."""
        return sorted(pid for pid, held in self._held.items() if held.is_marked)

    @property
    def is_undecided(self) -> bool:
        """Whether it is not yet known of some process if it is marked.

        On a machine where others start processes all the time somebody always is, so that this is
        not asked any more two seconds after the last marked one was seen.
        """
        is_patient = time.monotonic() < self._patient_until_s
        return is_patient and any(held.is_undecided for held in self._held.values())

    @property
    def may_be_left(self) -> bool:
        """Whether a marked process is left, or may be."""
        return self.is_undecided or bool(self.pids)

    def look(self, number: signal.Signals | None = None) -> bool:
        """Look once at every process; return whether one `may_be_left`.

        Each marked one that has not got the signal yet, if one is given, is sent it at once: it may
        be about to start another. Those whose environment we may not read are not found.
        """
        were_there = bool(self.pids)
        self._let_go_of_ended(within_s=0.0)
        for pid, held in list(self._held.items()):
            if not held.is_marked:
                self._decide(pid, was_marked=False)
            self._send(pid, number)
        seen = {os.getpid(), *self._spare(), *self._held}
        for _ in range(_MOST_LISTINGS):
            new = {int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()} - seen
            # The youngest first, which are about to start others.
            for pid in sorted(new, reverse=True):
                self._look_at(pid)
                self._send(pid, number)
            if not new:
                break
            seen |= new
        if self.pids or were_there:
            self._patient_until_s = time.monotonic() + _DECIDED_WITHIN_S
        return self.may_be_left

    def wait(self, timeout_s: float) -> None:
        """Return when all have ended, when it is time to look again, or after that long."""
        now = time.monotonic()
        # Most undecided ones are decided within a millisecond, and some within a second.
        ages_s = [now - held.since_s for held in self._held.values() if held.is_undecided]
        deadline = now + min([timeout_s, *(max(age_s, _SNAPSHOT_LIFETIME_S) for age_s in ages_s)])
        while self.may_be_left and (left_s := deadline - time.monotonic()) > 0:
            self._let_go_of_ended(within_s=left_s)

    def _look_at(self, pid: int) -> None:
        environment = environment_of(pid, owner=self._owner)
        was_marked = environment is not None and self._is_in(environment)
        if was_marked or environment is None:
            left = [held for held in self._held.values() if held.is_marked or held.is_undecided]
            if len(left) < _MOST_HELD:
                self._hold(pid, was_marked=was_marked)

    def _hold(self, pid: int, *, was_marked: bool) -> None:
        try:
            handle = os.pidfd_open(pid)
        except OSError as error:
            if error.errno in _HAS_ENDED:
                return
            raise
        self._held[pid] = _Held(handle, since_s=time.monotonic(), is_marked=False)
        # It may have ended meanwhile, and the handle be of another with its number.
        self._decide(pid, was_marked=was_marked)

    def _decide(self, pid: int, *, was_marked: bool) -> None:
        environment = environment_of(pid, owner=self._owner)
        if environment is None:
            self._held[pid].is_marked = was_marked
        elif self._is_in(environment):
            self._held[pid].is_marked = True
        else:
            self._let_go(pid)

    def _send(self, pid: int, number: signal.Signals | None) -> None:
        held = self._held.get(pid)
        if held is None or not held.is_marked or number is None or number in held.signals:
            return
        # Of one that is another user's by now, `pids` tells that it lives on.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            signal.pidfd_send_signal(held.handle, number)
            held.signals.add(number)

    def _is_in(self, environment: bytes) -> bool:
        return self._mark in environment.split(b"\0")

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
    """Return the pids of living processes started with NAME=VALUE, a hundred of them at most."""
    with MarkedProcesses(name, value) as marked:
        deadline = time.monotonic() + _DECIDED_WITHIN_S
        marked.look()
        while marked.is_undecided and time.monotonic() < deadline:
            marked.wait(_DECIDED_WITHIN_S)
            marked.look()
        return marked.pids


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


def has_ended(stat: bytes) -> bool:
    """Return whether no thread of a process runs any more, from its /proc/PID/stat.

    Where the first thread has ended the state is that of a zombie, also while others are at work.
    """
    fields = _fields(stat)
    # None are counted when another thread, to become a program, has just taken its place.
    return fields[_STATE] in (b"Z", b"X") and int(fields[_THREADS]) == 1


def _fields(stat: bytes) -> list[bytes]:
    """Return what stands behind the name, which may hold any bytes, spaces and parentheses too."""
    return stat.rpartition(b")")[2].split()


def shows_none_yet(stat: bytes, *, is_closed: bool = False) -> bool:
    """Whether a process that shows no environment may show one soon.

    `stat`: its /proc/PID/stat. `is_closed`: its environment could not be opened by us.

    One that becomes another program has none until that is there, and it may have come between
    opening and reading. The kernel notes where a program's code begins after it has noted where
    its environment ends. Of one whose first thread has ended, others may still be at work.
    """
    fields = _fields(stat)
    if fields[_STATE] in (b"Z", b"X"):
        return not has_ended(stat)
    flags = int(fields[_FLAGS])
    if flags & _KERNEL_THREAD:
        return False
    if is_closed or flags & _EXITING:
        # The files of a process that ends belong to the kernel, so only root can open them.
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
