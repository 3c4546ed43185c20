"""CPU time and resident memory of the trainers and everything they started."""

from __future__ import annotations

import os
from dataclasses import dataclass

import psutil

from farm.sampling.role_samples import (
    TRAINER_READS_EXTRA,
    TRAINER_WRITES_EXTRA,
    cpu_extra,
    resident_extra,
)
from worker_agent.metrics.contracts import Watched
from worker_agent.metrics.rates import Rates

# Listing descendants costs ten times as much as reading them (3.0 of 3.4 ms), and a trainer
# starts few processes.
RESCAN_TICKS = 5
_CLOCK_HZ = os.sysconf("SC_CLK_TCK")


def create(watched: Watched) -> ProcessesMetric | None:
    return ProcessesMetric(watched.pids, core_count=len(watched.cpus), roles=watched.roles)


@dataclass(slots=True)
class _Use:
    """What some processes use; None: nothing is known yet, or there is nobody left."""

    clock_ticks: float | None = None
    resident_bytes: int | None = None
    reads_per_s: float | None = None
    writes_per_s: float | None = None

    def add(self, field: str, value: float | None) -> None:
        if value is not None:
            setattr(self, field, (getattr(self, field) or 0) + value)


class ProcessesMetric:
    """Where the trainers have several roles, each role's share is told apart, as extras."""

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
        self._scanned_tick: int | None = None
        self._rates: dict[psutil.Process, Rates] = {}

    def read(self, tick: int) -> dict[str, float | int | None]:
        """Sum over the tree. Memory that processes share is counted in each of them.

        A process found late counts from then on; what it used before is not heaped on one tick.
        With the last process gone all values are None: there is nothing left to measure. Reads and
        writes are calls of the kernel, on files, sockets and pipes alike.
        """
        if self._scanned_tick is None or tick >= self._scanned_tick + RESCAN_TICKS:
            self._tree = self._scan()
            self._scanned_tick = tick
        before, self._rates = self._rates, {}
        total, of_role = _Use(), {role: _Use() for role in self._roles}
        for process, role in self._tree:
            try:
                counters, resident_bytes = _look(process)
            except psutil.Error:
                continue
            rates = self._rates[process] = before.get(process) or Rates()
            grown = rates.update(tick, counters)
            for use in (total, of_role.get(role or "")):
                if use is not None:
                    use.add("resident_bytes", resident_bytes)
                    for field, rate in grown.items():
                        use.add(field, rate)
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


def _look(process: psutil.Process) -> tuple[dict[str, int], int]:
    """Return the counters of a process, and its resident bytes."""
    with process.oneshot():
        times = process.cpu_times()
        counters = {"clock_ticks": round((times.user + times.system) * _CLOCK_HZ)}
        resident_bytes = process.memory_info().rss
    try:
        calls = process.io_counters()
    except (psutil.Error, NotImplementedError):
        return counters, resident_bytes  # another user's, or a kernel that does not count
    counts = {"reads_per_s": calls.read_count, "writes_per_s": calls.write_count}
    return counters | counts, resident_bytes
