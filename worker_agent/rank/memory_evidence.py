"""Evidence on whether a trainer was killed for lack of memory."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from worker_agent.machine.control_group import PROC, MemoryGroup, machine_kill_count, memory_group

logger = logging.getLogger(__name__)

KMSG = Path("/dev/kmsg")
_NAMESPACE = Path("/proc/self/ns/pid")
# The inode of the machine's first process namespace.
_FIRST_NAMESPACE = 0xEFFFFFFC
_RECORD_BYTES = 16 * 1024  # a longer record cannot be; a shorter buffer would be refused
# Of a control group or of the whole machine. What programs write into the log has another
# facility than the kernel's own 0, and proves nothing.
_KILLED = re.compile(
    rb"^(\d+),[^;\n]*;[^\n]*[Oo]ut of memory[^\n]*: Killed process (\d+) ", re.MULTILINE
)
_FACILITY_SHIFT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEvidence:
    """Since the trainer began; None is what nobody knows.

    `is_named`: by the kernel's own log; False where it names only others. The counters say that
    some process was killed, of the trainer's control group or of the whole machine, but not which.
    """

    is_named: bool | None = None
    group_kill_count: int | None = None
    machine_kill_count: int | None = None
    limit_bytes: int | None = None  # of the control group; None: it has none
    peak_bytes: int | None = None
    machine_bytes: int | None = None


class MemoryMonitor:
    """Watches from before the trainers of a rank are started; `close` is due."""

    def __init__(self, *, log: KernelLog | None = None, proc: Path = PROC) -> None:
        self._log = log or KernelLog(kernel_log_path())
        self._proc = proc
        self._machine_kill_count = machine_kill_count(proc=proc)
        # Trainers begin in the agent's own group.
        self._groups = {os.getpid(): self._counted(os.getpid())}

    def look(self, pids: Iterable[int]) -> None:
        """Note the control groups of trainers that live; a trainer may have one of its own."""
        self._groups |= {pid: self._counted(pid) for pid in pids}

    def evidence(self, pid: int, *, children: Sequence[int] = ()) -> MemoryEvidence:
        """Say what is known by now of the trainer `pid`, or of its `children`; all may be gone."""
        group, count = self._groups.get(pid) or self._groups[os.getpid()]
        limit_bytes, peak_bytes = (group and group.tightest_limit()) or (None, None)
        return MemoryEvidence(
            is_named=self._log.has_killed(*(children or (pid,))),
            group_kill_count=_growth(count, group.kill_count if group else None),
            machine_kill_count=_growth(
                self._machine_kill_count, machine_kill_count(proc=self._proc)
            ),
            limit_bytes=limit_bytes,
            peak_bytes=peak_bytes,
            machine_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        )

    def close(self) -> None:
        self._log.close()

    def _counted(self, pid: int) -> tuple[MemoryGroup | None, int | None]:
        group = memory_group(pid, proc=self._proc)
        return group, group.kill_count if group else None


def _growth(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before


def kernel_log_path() -> Path | None:
    """Return where the log is; None in a container, to whose numbers the log's do not belong."""
    return KMSG if _NAMESPACE.stat().st_ino == _FIRST_NAMESPACE else None


class KernelLog:
    """The processes that the kernel has killed for lack of memory since this was opened.

    With None, or where its log may not be read, it tells nothing.

    Opened at the log's present end, it keeps its place; `close` is due.
    """

    def __init__(self, path: Path | None) -> None:
        self._descriptor: int | None = None
        self._killed_pids: set[int] = set()
        self._has_lost_records = False
        if path is None:
            return
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._descriptor, 0, os.SEEK_END)
        except OSError as error:
            logger.debug("kernel's log cannot be read: %s", error)
            self.close()  # from its beginning it would tell of processes long gone

    def has_killed(self, *pids: int) -> bool | None:
        """Say whether one of `pids` was killed for lack of memory since the log was opened.

        False only where the log names others and is complete: a log without a single name may
        be late by a moment, and is no evidence. None: it does not tell.
        """
        self._read()
        if not self._killed_pids.isdisjoint(pids):
            return True
        return False if self._killed_pids and not self._has_lost_records else None

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _read(self) -> None:
        """Take every record that has come since, one each time it is read."""
        while self._descriptor is not None:
            try:
                record = os.read(self._descriptor, _RECORD_BYTES)
            except BrokenPipeError:  # the ring has gone round, and some were overwritten
                self._has_lost_records = True
                continue
            except BlockingIOError:
                return
            except OSError as error:
                logger.debug("kernel's log cannot be read any more: %s", error)
                self._has_lost_records = True
                self.close()
                return
            if not record:
                return
            for found in _KILLED.finditer(record):
                if int(found[1]) >> _FACILITY_SHIFT == 0:
                    self._killed_pids.add(int(found[2]))
