"""What the groups about disturbances make of the kernel's files."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from worker_agent.metrics import cpu, machine, network
from worker_agent.metrics.contracts import Watched

WATCHED = Watched(cpus=(0, 1), interface="lo", pids=())


def write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_swap_is_the_traffic_in_both_directions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path / "vmstat", "pgpgin 7\npswpin 1\npswpout 2\n")
    monkeypatch.setattr(machine, "PROC_VMSTAT", file)
    metric = machine.create_swap(WATCHED)
    assert metric is not None
    assert metric.read(0) == {"swap_bytes_per_s": None}
    file.write_text("pgpgin 9\npswpin 4\npswpout 9\n")
    assert metric.read(1) == {"swap_bytes_per_s": 10 * resource.getpagesize()}


def test_a_kernel_without_swap_has_no_such_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "PROC_VMSTAT", write(tmp_path / "vmstat", "pgpgin 7\n"))
    assert machine.create_swap(WATCHED) is None


V2 = "usage_usec 5\nnr_periods 10\nnr_throttled 2\nthrottled_usec {}\n"
V1 = "nr_periods 10\nnr_throttled 2\nthrottled_time {}\n"


@pytest.fixture
def cgroups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(cpu, "SYS_CGROUP", tmp_path)
    return tmp_path


def test_throttling_is_a_share_of_the_cores_time_in_both_versions(cgroups: Path) -> None:
    second = write(cgroups / "farm" / "cpu.stat", V2.format(0))
    first = write(cgroups / "cpu" / "farm" / "cpu.stat", V1.format(0))
    metric = cpu.ThrottlingMetric([second, first], core_count=2)
    assert metric.read(0) == {"throttled_ratio": None}
    second.write_text(V2.format(500_000))
    assert metric.read(1) == {"throttled_ratio": 0.25}
    first.write_text(V1.format(1_000_000_000))
    assert metric.read(2) == {"throttled_ratio": 0.5}
    first.write_text(V1.format(9_000_000_000))
    assert metric.read(3) == {"throttled_ratio": 1.0}


def test_the_quotas_of_a_process_are_its_own_groups_and_those_above(cgroups: Path) -> None:
    for folder in ("", "farm.slice", "farm.slice/agent.service", "other"):
        write(cgroups / folder / "cpu.stat", V2.format(0))
    found = cpu.stat_files("0::/farm.slice/agent.service\n")
    assert [str(f.relative_to(cgroups)) for f in found] == [
        "farm.slice/agent.service/cpu.stat",
        "farm.slice/cpu.stat",
        "cpu.stat",
    ]


def test_only_the_cpu_controller_of_version_1_is_asked(cgroups: Path) -> None:
    file = write(cgroups / "cpu" / "a" / "cpu.stat", V1.format(0))
    write(cgroups / "cpuacct" / "a" / "cpu.stat", V1.format(0))
    assert cpu.stat_files("5:memory:/a\n3:cpuset:/a\n2:cpuacct:/a\n1:cpu,x:/a\n") == [file]


def test_in_a_container_that_sees_its_hosts_path_the_root_is_asked(cgroups: Path) -> None:
    file = write(cgroups / "cpu.stat", V2.format(0))
    assert cpu.stat_files("0::/kubepods/pod1/abc\n") == [file]


def test_without_a_quota_controller_there_is_no_such_group(cgroups: Path) -> None:
    write(cgroups / "cpu.stat", "usage_usec 5\n")
    assert cpu.create_throttling(WATCHED) is None


def test_heat_is_the_count_that_grew_fastest_on_the_agents_own_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "SYS_CPU", tmp_path)
    folder = "thermal_throttle"
    core = write(tmp_path / "cpu0" / folder / "core_throttle_count", "1\n")
    package = write(tmp_path / "cpu0" / folder / "package_throttle_count", "5\n")
    other = write(tmp_path / "cpu7" / folder / "core_throttle_count", "0\n")
    metric = cpu.create_thermal(WATCHED)
    assert metric is not None
    assert metric.read(0) == {"thermal_throttles_per_s": None}
    core.write_text("2\n")
    package.write_text("8\n")
    other.write_text("999\n")
    assert metric.read(1) == {"thermal_throttles_per_s": 3.0}


def test_the_clock_is_the_mean_of_the_agents_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "SYS_CPU", tmp_path)
    assert cpu.create_frequency(WATCHED) is None
    for number, khz in enumerate((2_000_000, 3_000_000)):
        write(tmp_path / f"cpu{number}" / "cpufreq" / "scaling_cur_freq", f"{khz}\n")
    metric = cpu.create_frequency(WATCHED)
    assert metric is not None
    assert metric.read(0) == {"cpu_frequency_hz": 2.5e9}


def test_pressure_is_the_share_of_the_second_in_which_somebody_waited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "some avg10=1.00 avg60=0.50 avg300=0.10 total={}\nfull avg10=0 total=1\n"
    monkeypatch.setattr(machine, "PROC_PRESSURE", tmp_path)
    assert machine.create_pressure(WATCHED) is None
    write(tmp_path / "memory", text.format(0))
    cpu = write(tmp_path / "cpu", text.format(1000))
    metric = machine.create_pressure(WATCHED)
    assert metric is not None
    assert metric.read(0) == {"cpu_pressure_ratio": None, "memory_pressure_ratio": None}
    cpu.write_text(text.format(251_000))
    assert metric.read(1) == {"cpu_pressure_ratio": 0.25, "memory_pressure_ratio": 0.0}


def test_on_loopback_the_bytes_are_those_of_the_trainers_own_connections() -> None:
    """The interface carries what the other end sends, too, and everybody else's bytes."""
    with socket.create_server(("127.0.0.1", 0)) as server, pair(server) as (near, far):
        metric = network.create(replace(WATCHED, pids=(os.getpid(),)))
        assert metric is not None
        assert metric.read(0) == {"net_rx_bytes_per_s": None, "net_tx_bytes_per_s": None}
        near.sendall(b"x" * 3000)
        assert len(far.recv(3000, socket.MSG_WAITALL)) == 3000
        # Both ends belong to this process.
        assert metric.read(1) == {"net_rx_bytes_per_s": 3000.0, "net_tx_bytes_per_s": 3000.0}
        with pair(server) as (newer, _):
            newer.sendall(b"y" * 50)
            assert metric.read(2)["net_tx_bytes_per_s"] == 50.0
        # What passed in a second that was not read is in no rate.
        near.sendall(b"z")
        assert metric.read(4)["net_tx_bytes_per_s"] is None


def test_what_other_processes_exchange_over_loopback_is_not_a_ranks() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, pair(server) as (near, far):
        code = "import sys; sys.stdin.read()"
        with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as other:
            metric = network.create(
                replace(WATCHED, pids=(other.pid, os.getpid()), roles=("worker",))
            )
            assert metric is not None
            metric.read(0)
            near.sendall(b"x" * 3000)
            far.recv(3000, socket.MSG_WAITALL)
            assert metric.read(1) == {"net_rx_bytes_per_s": 0.0, "net_tx_bytes_per_s": 0.0}
            other.communicate()
        assert metric.read(2)["net_tx_bytes_per_s"] is None


def test_elsewhere_the_bytes_are_the_interfaces() -> None:
    metric = network.create(replace(WATCHED, interface="eth-of-nobody"))
    assert isinstance(metric, network.NetworkMetric)


@contextlib.contextmanager
def pair(server: socket.socket) -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_connection(server.getsockname(), timeout=60) as near:
        far, _ = server.accept()
        with far:
            yield near, far
