"""CPU time and resident memory of the trainers and everything they started."""

from __future__ import annotations

import os

import psutil

from farm.core.ticks import CounterReading, rate_per_s
from worker_agent.metrics.contracts import Watched

# Listing descendants costs ten times as much as reading them (3.0 of 3.4 ms), and a trainer
# starts few processes.
RESCAN_TICKS = 5
_CLOCK_HZ = os.sysconf("SC_CLK_TCK")


def create(watched: Watched) -> ProcessesMetric | None:
    return ProcessesMetric(watched.pids, core_count=len(watched.cpus))


class ProcessesMetric:
    def __init__(self, pids: tuple[int, ...], *, core_count: int) -> None:
        self._roots = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
        self._core_count = core_count
        self._tree: list[psutil.Process] = []
        self._scanned_tick: int | None = None
        self._cpu: dict[psutil.Process, CounterReading] = {}

    def read(self, tick: int) -> dict[str, float | int | None]:
        """Sum over the tree. Memory that processes share is counted in each of them.

        A process found late counts from then on; what it used before is not heaped on one tick.
        With the last process gone both values are None: there is nothing left to measure.
        """
        if self._scanned_tick is None or tick >= self._scanned_tick + RESCAN_TICKS:
            self._tree = self._scan()
            self._scanned_tick = tick
        previous, self._cpu = self._cpu, {}
        resident_bytes = 0
        clock_ticks: list[float] = []
        for process in self._tree:
            try:
                with process.oneshot():
                    times = process.cpu_times()
                    resident_bytes += process.memory_info().rss
            except psutil.NoSuchProcess:
                continue
            reading = CounterReading(tick, round((times.user + times.system) * _CLOCK_HZ))
            self._cpu[process] = reading
            rate = rate_per_s(previous.get(process), reading)
            if rate is not None:
                clock_ticks.append(rate)
        cpu_ratio = sum(clock_ticks) / _CLOCK_HZ / self._core_count if clock_ticks else None
        return {"cpu_ratio": cpu_ratio, "resident_bytes": resident_bytes if self._cpu else None}

    def _scan(self) -> list[psutil.Process]:
        tree: list[psutil.Process] = []
        for root in self._roots:
            try:
                tree += [root, *root.children(recursive=True)]
            except psutil.NoSuchProcess:
                continue
        return tree
