"""Samples CPU time and resident memory of the trainers and everything they started."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import psutil

from farm.sampling.names import (
    TRAINER_READS_EXTRA,
    TRAINER_WRITES_EXTRA,
    cpu_extra,
    resident_extra,
)
from farm.sampling.ticks import Rates
from worker_agent.metrics.contracts import Watched

_CLOCK_HZ = os.sysconf("SC_CLK_TCK")
# By process: its role, and the clock ticks of itself and of those it has waited for.
_Ticks: TypeAlias = dict[psutil.Process, tuple[str | None, int, int]]
_LOAD = Path("/proc/loadavg")  # whose last field is the id of the newest process


def create(watched: Watched) -> ProcessesMetric | None:
    return ProcessesMetric(watched.pids, core_count=len(watched.cpus), roles=watched.roles)


@dataclass(slots=True)
class _Use:
    """The resource usage of some processes; None: not known yet, or none is left."""

    clock_ticks: float | None = None
    resident_bytes: int | None = None
    reads_per_s: float | None = None
    writes_per_s: float | None = None

    def add(self, field: str, value: float | None) -> None:
        if value is not None:
            setattr(self, field, (getattr(self, field) or 0) + value)


class ProcessesMetric:
    """If trainers have several roles, the share of each role is an extra value."""

    def __init__(
        self, pids: tuple[int, ...], *, core_count: int, roles: tuple[str, ...] = ()
    ) -> None:
        known = dict(zip(pids, roles, strict=False))
        self._roots = [
            (psutil.Process(pid), known.get(pid)) for pid in pids if psutil.pid_exists(pid)
        ]
        self._roles = sorted(set(roles)) if len(set(roles)) > 1 else []
        self._core_count = core_count
        self._tree: list[tuple[psutil.Process, str | None]] = []
        self._newest: bytes | None = None
        self._tick: int | None = None
        self._rates: dict[psutil.Process, Rates] = {}
        self._ticks: _Ticks = {}

    def read(self, tick: int) -> dict[str, float | int | None]:
        """Sum over the tree. Memory that processes share is counted in each of them.

        All usage of a new process is counted for its first tick; the rest of an ended process comes
        from its parent. Once the last process has ended, all values are None. Reads and writes are
        system calls, on files, sockets and pipes.
        """
        # To list descendants costs ten times as much as to read them: 3.0 of 3.4 ms.
        newest = _newest_process()
        if newest is None or newest != self._newest:
            self._tree, self._newest = self._scan(), newest
        rates, self._rates = self._rates, {}
        ticks, self._ticks = self._ticks, {}
        is_next = self._tick is not None and self._tick == tick - 1
        self._tick = tick
        total, of_role = _Use(), {role: _Use() for role in self._roles}
        for process, role in self._tree:
            try:
                counters, reaped_ticks, resident_bytes = _look(process)
            except psutil.Error:
                continue
            of_process = rates.get(process)
            if of_process is None:
                of_process = Rates()
                if is_next:
                    of_process.update(tick - 1, dict.fromkeys(counters, 0))
            self._rates[process] = of_process
            self._ticks[process] = (role, counters["clock_ticks"], reaped_ticks)
            grown = of_process.update(tick, counters)
            for use in (total, of_role.get(role or "")):
                if use is not None:
                    use.add("resident_bytes", resident_bytes)
                    for field, rate in grown.items():
                        use.add(field, rate)
        if is_next:
            for role, rest in _ended(ticks, self._ticks).items():
                for use in (total, of_role.get(role or "")):
                    if use is not None and use.clock_ticks is not None:
                        use.add("clock_ticks", rest)
        return {
            "cpu_ratio": self._ratio(total),
            "resident_bytes": total.resident_bytes,
            TRAINER_READS_EXTRA: total.reads_per_s,
            TRAINER_WRITES_EXTRA: total.writes_per_s,
            **{cpu_extra(role): self._ratio(use) for role, use in of_role.items()},
            **{resident_extra(role): use.resident_bytes for role, use in of_role.items()},
        }

    def _ratio(self, use: _Use) -> float | None:
        ticks = use.clock_ticks
        return None if ticks is None else ticks / _CLOCK_HZ / self._core_count

    def _scan(self) -> list[tuple[psutil.Process, str | None]]:
        tree: list[tuple[psutil.Process, str | None]] = []
        for root, role in self._roots:
            try:
                tree += [(process, role) for process in (root, *root.children(recursive=True))]
            except psutil.NoSuchProcess:
                continue
        return tree


def _newest_process() -> bytes | None:
    """Return a value that changes whenever a process starts; None: this kernel has none."""
    try:
        return _LOAD.read_bytes().rpartition(b" ")[2]
    except OSError:
        return None


def _ended(before: _Ticks, now: _Ticks) -> Counter[str | None]:
    """Return by role the usage of ended processes that was not seen before their end."""
    rest: Counter[str | None] = Counter()
    for process, (role, _, reaped_ticks) in now.items():
        rest[role] += reaped_ticks - (before[process][2] if process in before else 0)
    for process, (role, own_ticks, reaped_ticks) in before.items():
        if process not in now:
            rest[role] -= own_ticks + reaped_ticks
    return +rest  # what nobody waited for would be less than nothing


def _look(process: psutil.Process) -> tuple[dict[str, int], int, int]:
    """Return a process' counters, the ticks of those it has waited for, and its resident bytes."""
    with process.oneshot():
        times = process.cpu_times()
        counters = {"clock_ticks": round((times.user + times.system) * _CLOCK_HZ)}
        reaped_ticks = round((times.children_user + times.children_system) * _CLOCK_HZ)
        resident_bytes = process.memory_info().rss
    try:
        calls = process.io_counters()
    except (psutil.Error, NotImplementedError):
        # Another user's, or a kernel that does not count.
        return counters, reaped_ticks, resident_bytes
    counts = {"reads_per_s": calls.read_count, "writes_per_s": calls.write_count}
    return counters | counts, reaped_ticks, resident_bytes
