"""Bytes and operations of the machine's disks."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from worker_agent.metrics.contracts import Watched
from worker_agent.metrics.rates import Rates

PROC_DISKSTATS = Path("/proc/diskstats")
SYS_BLOCK = Path("/sys/block")
_SECTOR_BYTES = 512  # the kernel's unit here, whatever the disk's own is


def create(watched: Watched) -> DiskMetric | None:
    """Return None where no real disk is visible, as in some containers."""
    # Loop, RAM and mapped devices have no hardware behind them, and what goes through them is
    # counted at the disk below.
    disks = frozenset(path.name for path in SYS_BLOCK.glob("*") if (path / "device").exists())
    return DiskMetric(disks) if disks and PROC_DISKSTATS.exists() else None


class DiskMetric:
    def __init__(self, disks: frozenset[str]) -> None:
        self._disks = disks
        self._rates = Rates()

    def read(self, tick: int) -> dict[str, float | None]:
        return self._rates.update(tick, parse_diskstats(PROC_DISKSTATS.read_text(), self._disks))


def parse_diskstats(text: str, disks: Collection[str]) -> dict[str, int]:
    """Sum bytes and completed operations of `disks` since boot."""
    reads = sectors_read = writes = sectors_written = 0
    for line in text.splitlines():
        fields = line.split()
        if fields[2] in disks:
            reads += int(fields[3])
            sectors_read += int(fields[5])
            writes += int(fields[7])
            sectors_written += int(fields[9])
    return {
        "disk_read_bytes_per_s": sectors_read * _SECTOR_BYTES,
        "disk_write_bytes_per_s": sectors_written * _SECTOR_BYTES,
        "disk_read_operations_per_s": reads,
        "disk_write_operations_per_s": writes,
    }
