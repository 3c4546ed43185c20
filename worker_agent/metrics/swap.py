"""Bytes to and from swap, of the whole machine: a process that swaps slows down the others."""

from __future__ import annotations

import os
from pathlib import Path

from worker_agent.metrics.contracts import Watched
from worker_agent.metrics.rates import Rates

PROC_VMSTAT = Path("/proc/vmstat")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_COUNTERS = frozenset({"pswpin", "pswpout"})


def create(watched: Watched) -> SwapMetric | None:
    """Return None for a kernel without swap, which has no such counters."""
    has_swap = PROC_VMSTAT.exists() and parse_vmstat(PROC_VMSTAT.read_text()) is not None
    return SwapMetric() if has_swap else None


class SwapMetric:
    def __init__(self) -> None:
        self._rates = Rates()

    def read(self, tick: int) -> dict[str, float | None]:
        swapped = parse_vmstat(PROC_VMSTAT.read_text())
        return self._rates.update(tick, {} if swapped is None else {"swap_bytes_per_s": swapped})


def parse_vmstat(text: str) -> int | None:
    """Return the bytes swapped in and out since boot; None where the kernel does not count."""
    pages = [
        int(value)
        for name, _, value in (line.partition(" ") for line in text.splitlines())
        if name in _COUNTERS
    ]
    return sum(pages) * _PAGE_BYTES if pages else None
