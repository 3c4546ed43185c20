"""The power of processors, from a folder as Linux has it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from farm.sampling.names import CPU_POWER_EXTRA
from worker_agent.metrics import machine
from worker_agent.metrics.contracts import Watched

MACHINE = Watched(cpus=tuple(range(os.cpu_count() or 1)), interface="lo", pids=())
LARGEST_UJ = 262_143_328_850


def zone(folder: Path, name: str, energy_uj: int) -> Path:
    folder.mkdir()
    (folder / "name").write_text(f"{name}\n")
    (folder / "max_energy_range_uj").write_text(f"{LARGEST_UJ}\n")
    (folder / "energy_uj").write_text(f"{energy_uj}\n")
    return folder / "energy_uj"


@pytest.fixture
def powercap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(machine, "SYS_POWERCAP", tmp_path)
    return tmp_path


def read_w(metric: machine.PowerMetric, tick: int) -> float | None:
    return metric.read(tick)[CPU_POWER_EXTRA]


def test_power_is_of_all_processors_and_their_memory_and_counts_nothing_twice(
    powercap: Path,
) -> None:
    first = zone(powercap / "intel-rapl:0", "package-0", 1_000_000)
    second = zone(powercap / "intel-rapl:1", "package-1", 0)
    memory = zone(powercap / "intel-rapl:0:1", "dram", 0)
    part = zone(powercap / "intel-rapl:0:0", "core", 0)
    platform = zone(powercap / "intel-rapl:2", "psys", 0)
    again = zone(powercap / "intel-rapl-mmio:0", "package-0", 0)
    metric = machine.create_power(MACHINE)
    assert metric is not None
    assert read_w(metric, 0) is None
    for file, uj in ((first, 51_000_000), (second, 20_000_000), (memory, 5_000_000)):
        file.write_text(str(uj))
    for file in (part, platform, again):
        file.write_text("900000000")
    assert read_w(metric, 1) == pytest.approx(50 + 20 + 5)
    assert read_w(metric, 3) is None  # what a lost second had is not told apart


def test_a_counter_that_begins_again_goes_on(powercap: Path) -> None:
    energy = zone(powercap / "intel-rapl:0", "package-0", LARGEST_UJ - 10_000_000)
    metric = machine.create_power(MACHINE)
    assert metric is not None
    read_w(metric, 0)
    energy.write_text("30000000")
    assert read_w(metric, 1) == pytest.approx(40)
    energy.write_text("60000000")
    assert read_w(metric, 2) == pytest.approx(30)


def test_energy_that_is_not_the_agents_alone_or_cannot_be_read_is_not_told(powercap: Path) -> None:
    assert machine.create_power(MACHINE) is None
    energy = zone(powercap / "intel-rapl:0", "package-0", 0)
    assert machine.create_power(MACHINE) is not None
    assert machine.create_power(Watched(cpus=MACHINE.cpus[1:], interface="lo", pids=())) is None
    energy.unlink()  # as good as one that only root may read, for tests that root runs
    assert machine.create_power(MACHINE) is None
