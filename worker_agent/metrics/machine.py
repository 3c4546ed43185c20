"""Samples the whole machine: memory, swap, disks, waiting tasks, and power of processors."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

import psutil

from farm.sampling.names import CPU_POWER_EXTRA
from farm.sampling.ticks import Rates
from worker_agent.metrics.contracts import Watched

PROC_VMSTAT = Path("/proc/vmstat")
PROC_DISKSTATS = Path("/proc/diskstats")
PROC_PRESSURE = Path("/proc/pressure")
SYS_BLOCK = Path("/sys/block")
SYS_POWERCAP = Path("/sys/class/powercap")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_SWAP_COUNTERS = frozenset({"pswpin", "pswpout"})
_SECTOR_BYTES = 512  # the kernel's unit here, whatever the disk's own is
_PRESSURE_RESOURCES = ("cpu", "memory")
_SECOND_US = 1_000_000
_J_PER_UJ = 1e-6


def create_memory(watched: Watched) -> MemoryMetric | None:
    return MemoryMetric()


class MemoryMetric:
    def read(self, tick: int) -> dict[str, int | None]:
        memory = psutil.virtual_memory()
        return {"memory_used_bytes": memory.total - memory.available}


def create_swap(watched: Watched) -> SwapMetric | None:
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
    """Return the bytes swapped in and out since boot; None if the kernel does not count them."""
    pages = [
        int(value)
        for name, _, value in (line.partition(" ") for line in text.splitlines())
        if name in _SWAP_COUNTERS
    ]
    return sum(pages) * _PAGE_BYTES if pages else None


def create_disk(watched: Watched) -> DiskMetric | None:
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


def create_pressure(watched: Watched) -> PressureMetric | None:
    """Return None if the kernel does not count it, or does not allow reading it."""
    try:
        for resource in _PRESSURE_RESOURCES:
            (PROC_PRESSURE / resource).read_text()
    except OSError:
        return None
    return PressureMetric()


class PressureMetric:
    def __init__(self) -> None:
        self._rates = Rates()

    def read(self, tick: int) -> dict[str, float | None]:
        """Return the share of the second in which at least one task of the machine waited."""
        totals_us = {
            f"{resource}_pressure_ratio": parse_pressure((PROC_PRESSURE / resource).read_text())
            for resource in _PRESSURE_RESOURCES
        }
        rates = self._rates.update(tick, totals_us)
        return {
            name: None if rate is None else min(1.0, rate / _SECOND_US)
            for name, rate in rates.items()
        }


def parse_pressure(text: str) -> int:
    """Return the microseconds of the "some" line since boot."""
    some = next(line for line in text.splitlines() if line.startswith("some"))
    return int(some.rpartition("total=")[2])


def create_power(watched: Watched) -> PowerMetric | None:
    """Return None without readable counters, as in VMs, or if other agents share the machine."""
    zones = zones_of(SYS_POWERCAP)
    try:
        for zone in zones:
            zone.read_uj()
    except (OSError, ValueError):
        return None
    return PowerMetric(zones) if zones and watched.has_machine else None


class Zone:
    """A counter of microjoules that wraps to 0 after its largest value."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._wrapped_uj = 0
        self._previous_uj = 0

    def read_uj(self) -> int:
        """Return the total count, including all wraps.

        It must be read more often than the counter wraps, which takes a minute or more.
        """
        now_uj = int((self._folder / "energy_uj").read_text())
        if now_uj < self._previous_uj:
            self._wrapped_uj += int((self._folder / "max_energy_range_uj").read_text())
        self._previous_uj = now_uj
        return self._wrapped_uj + now_uj


class PowerMetric:
    def __init__(self, zones: list[Zone]) -> None:
        self._zones = zones
        self._rates = Rates()

    def read(self, tick: int) -> dict[str, float | None]:
        """Return the mean power over the second, of all processors and their memory."""
        counters = {str(number): zone.read_uj() for number, zone in enumerate(self._zones)}
        rates = [rate for rate in self._rates.update(tick, counters).values() if rate is not None]
        is_known = len(rates) == len(counters)
        return {CPU_POWER_EXTRA: sum(rates) * _J_PER_UJ if is_known else None}


def zones_of(powercap: Path) -> list[Zone]:
    """Return the counters of each processor, and of its memory where it has one beside.

    Other counters are parts of these, or include them: cores, graphics, the whole platform.
    """
    zones = []
    for folder in sorted(powercap.glob("intel-rapl:*")):  # AMD's, too
        try:
            name = (folder / "name").read_text().strip()
        except OSError:
            continue
        if name.startswith("package") or name == "dram":
            zones.append(Zone(folder))
    return zones
