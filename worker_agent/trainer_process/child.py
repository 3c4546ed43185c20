"""A child process of the agent: waits for its end and kills its process group."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from farm.processes.marked import has_ended

logger = logging.getLogger(__name__)

_PR_SET_CHILD_SUBREAPER = 36
_is_reaper = False
_MOST_LOOKS = 100  # each takes a millisecond


class Child:
    """Leads a process group. One thread may wait for it while any other kills it."""

    def __init__(self, pid: int, reap: Callable[[], int]) -> None:
        self.pid = pid
        self._reap = reap
        self._lock = threading.Lock()  # between reaping and killing: a reaped number is anybody's
        self._return_code: int | None = None

    @classmethod
    def started(cls, process: subprocess.Popen[bytes]) -> Child:
        """Take over a process that was started in a session of its own."""
        return cls(process.pid, process.wait)

    @classmethod
    def adopted(cls, pid: int) -> Child:
        """Take over a process that the kernel has made this one's child."""
        return cls(pid, lambda: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

    @property
    def is_alive(self) -> bool:
        """Whether its number is still its own; it may be about to end, or have ended just now."""
        return self._return_code is None

    def wait(self) -> int:
        """Wait for its end and reap it; return the return code as `subprocess` has it."""
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        with self._lock:
            self._return_code = self._reap()
        return self._return_code

    def kill_group(self) -> None:
        """Kill its whole process group; harmless when it has ended."""
        # The group may outlive its leader, but once that has been reaped the number may be
        # another's; what is left then is found by its mark.
        with self._lock:
            if self.is_alive:
                try:
                    os.killpg(self.pid, signal.SIGKILL)
                except ProcessLookupError:
                    logger.debug("process had ended already", extra={"pid": self.pid})


def become_reaper() -> bool:
    """Make this process the parent of every descendant that loses its own; False: it cannot be."""
    global _is_reaper
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        logger.warning("not the reaper: %s", os.strerror(ctypes.get_errno()))
        return False
    _is_reaper = True
    return True


def kill_other_sessions(*, spare: Collection[int]) -> set[int]:
    """Kill this process's descendants in other sessions than its own; return those killed.

    Trainers lead sessions of their own, whatever else the agent starts stays in the agent's, and no
    process can join another's session. So this ends all that a trainer has started, even if it has
    left its group and lost its environment. `spare`: sessions that stay. Without effect in a
    process that is not the reaper.

    A process may start another and end while it is looked at. So groups are killed as a whole, also
    those of which only an ended process is seen, and it is looked again while new ones appear.
    """
    killed: set[int] = set()
    if not _is_reaper:
        return killed
    spared = {os.getsid(0), *spare}
    seen: set[int] = set()
    for _ in range(_MOST_LOOKS):
        alive, ended = _kill_descendants(spared)
        killed |= alive
        if not alive and ended <= seen:
            return killed
        seen |= ended
    return killed | seen


def _kill_descendants(spared: Collection[int]) -> tuple[set[int], set[int]]:
    """Kill what is alive in other sessions than these; return that, and what had ended already."""
    alive: set[int] = set()
    ended: set[int] = set()
    for pid in _descendants(os.getpid()):
        try:
            if os.getsid(pid) in spared:
                continue
            # At once, and only then is it looked at: it may be about to start another.
            os.killpg(os.getpgid(pid), signal.SIGKILL)
            os.kill(pid, signal.SIGKILL)
            stat = Path(f"/proc/{pid}/stat").read_bytes()
            (ended if has_ended(stat) else alive).add(pid)
        except (FileNotFoundError, ProcessLookupError):
            ended.add(pid)
        except PermissionError as error:  # another user's, such as by sudo
            logger.warning("cannot kill processes that a trainer left behind: %s", error)
    return alive, ended


def _descendants(pid: int) -> Iterator[int]:
    """Return its children and theirs, the youngest first: the others may have ended long ago.

    As the kernel lists them: psutil would read all processes of the machine.
    """
    children: list[int] = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            children += map(int, (thread / "children").read_text().split())
    for child in reversed(children):
        yield child
        yield from _descendants(child)


def reap_orphans(*, own: Collection[int]) -> None:
    """Reap the adopted children that have ended; `own` are those that somebody waits for.

    They are what a trainer had started and left behind.
    """
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        # Only the first of several is shown; behind one of our own, the next call finds the rest.
        if ended is None or ended.si_pid in own:
            return
        os.waitpid(ended.si_pid, 0)
        logger.debug("orphan was reaped", extra={"pid": ended.si_pid})
