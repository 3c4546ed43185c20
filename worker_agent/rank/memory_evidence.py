"""What speaks for and against a trainer having been killed for want of memory."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from worker_agent.machine.control_group import PROC, MemoryGroup, machine_kill_count, memory_group
from worker_agent.machine.kernel_log import KernelLog, kernel_log_path


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


class MemoryWitness:
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

    def evidence(self, pid: int) -> MemoryEvidence:
        """Say what is known by now of the trainer `pid`, which may be gone already."""
        group, count = self._groups.get(pid) or self._groups[os.getpid()]
        limit_bytes, peak_bytes = (group and group.tightest_limit()) or (None, None)
        return MemoryEvidence(
            is_named=self._log.has_killed(pid),
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
