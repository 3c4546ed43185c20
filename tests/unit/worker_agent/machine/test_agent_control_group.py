"""Which files count for a process's memory, in every way in which control groups are mounted."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from worker_agent.config import load_config
from worker_agent.machine.control_group import (
    cpu_quota_cores,
    machine_kill_count,
    memory_group,
    memory_limit_bytes,
)
from worker_agent.machine.hardware import own_core_count, read_facts

PID = 77
V2 = "30 23 0:26 {root} {mount} rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = "35 31 0:32 {root} {mount} rw,relatime - cgroup cgroup rw,memory\n"
CPU_V1 = "32 31 0:29 / {mount} rw - cgroup  rw,cpu,cpuacct\n"


class Machine:
    """A /proc and its mounts, as files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.proc = folder / "proc"
        self._mountinfo = ""

    def mount(self, line: str, name: str, root: str = "/") -> Path:
        self._mountinfo += line.format(root=root, mount=self.folder / name)
        self.write("proc/self/mountinfo", self._mountinfo)
        return self.folder / name

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def is_in(self, *lines: str) -> None:
        self.write(f"proc/{PID}/cgroup", "".join(f"{line}\n" for line in lines))

    def kill_count(self) -> int | None:
        group = memory_group(PID, proc=self.proc)
        return group.kill_count if group else None

    def tightest_limit(self) -> tuple[int, int | None] | None:
        group = memory_group(PID, proc=self.proc)
        assert group is not None
        return group.tightest_limit()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def events(count: int) -> str:
    return f"low 0\nhigh 0\nmax 9\noom 3\noom_kill {count}\noom_group_kill 0\n"


def test_version_2_counts_in_the_groups_own_events(machine: Machine) -> None:
    machine.mount(V2, "cg")
    machine.is_in("0::/farm.slice/agent.service")
    machine.write("cg/farm.slice/agent.service/memory.events", events(5))
    machine.write("cg/farm.slice/agent.service/memory.events.local", events(1))
    machine.write("cg/farm.slice/memory.events", events(8))
    assert machine.kill_count() == 5


def test_version_1_counts_in_oom_control(machine: Machine) -> None:
    machine.mount(CPU_V1, "cpu")
    machine.mount(V1, "memory")
    machine.is_in("9:name=systemd:/", "5:cpu,cpuacct:/x", "4:memory:/agents")
    machine.write("memory/agents/memory.oom_control", "under_oom 0\noom_kill 3\n")
    assert machine.kill_count() == 3


def test_a_hybrid_machine_counts_where_the_memory_controller_is(machine: Machine) -> None:
    machine.mount(V2, "unified")
    machine.mount(V1, "memory")
    machine.is_in("4:memory:/agents", "0::/agent.service")
    machine.write("unified/agent.service/cgroup.procs", "")
    machine.write("memory/agents/memory.oom_control", "under_oom 0\noom_kill 3\n")
    assert machine.kill_count() == 3


def test_the_root_group_of_version_2_counts_nothing(machine: Machine) -> None:
    machine.mount(V2, "cg").mkdir()
    machine.is_in("0::/")
    assert memory_group(PID, proc=machine.proc) is None


@pytest.mark.parametrize(
    ("line", "file"), [(V2, "memory.events"), (V1, "memory.oom_control")], ids=["v2", "v1"]
)
def test_a_container_without_a_namespace_finds_its_group_at_the_mount(
    machine: Machine, line: str, file: str
) -> None:
    machine.mount(line, "cg", root="/docker/4f2a")
    machine.is_in("4:memory:/docker/4f2a/sub", "0::/docker/4f2a/sub")
    machine.write(f"cg/sub/{file}", "oom_kill 2\n")
    assert machine.kill_count() == 2


def test_the_tightest_limit_may_be_of_a_group_above(machine: Machine) -> None:
    machine.mount(V2, "cg")
    machine.is_in("0::/a/b/c")
    machine.write("cg/a/b/c/memory.events", events(0))
    for name, limit, peak in (("a/b/c", "max", 10), ("a/b", "4096", 20), ("a", "8192", 30)):
        machine.write(f"cg/{name}/memory.max", f"{limit}\n")
        machine.write(f"cg/{name}/memory.peak", f"{peak}\n")
    assert machine.tightest_limit() == (4096, 20)


def test_a_kernel_that_keeps_no_peak_still_tells_the_limit(machine: Machine) -> None:
    machine.mount(V2, "cg")
    machine.is_in("0::/a")
    machine.write("cg/a/memory.events", events(0))
    machine.write("cg/a/memory.max", "4096\n")
    assert machine.tightest_limit() == (4096, None)


def test_version_1_has_no_limit_where_it_writes_the_largest_number(machine: Machine) -> None:
    machine.mount(V1, "memory")
    machine.is_in("4:memory:/agents")
    machine.write("memory/agents/memory.oom_control", "oom_kill 0\n")
    machine.write("memory/agents/memory.limit_in_bytes", "9223372036854771712\n")
    assert machine.tightest_limit() is None


def test_a_process_that_is_gone_is_in_no_group(machine: Machine) -> None:
    machine.mount(V2, "cg")
    assert memory_group(PID, proc=machine.proc) is None


def test_the_machines_own_counter_is_found(machine: Machine) -> None:
    machine.write("proc/vmstat", "nr_free_pages 5\noom_kill 4\n")
    assert machine_kill_count(proc=machine.proc) == 4


@pytest.mark.parametrize(
    ("line", "name", "file", "text"),
    [
        (V2, "0::", "memory.max", "max\n"),
        (V1, "4:memory:", "memory.limit_in_bytes", f"{2**63 - 4096}\n"),
    ],
    ids=["v2", "v1"],
)
def test_the_lowest_limit_above_a_group_is_its_own(
    machine: Machine, line: str, name: str, file: str, text: str
) -> None:
    machine.mount(line, "cg")
    machine.is_in(f"{name}/pod/container")
    machine.write(f"cg/pod/container/{file}", text)
    assert memory_limit_bytes(PID, proc=machine.proc) is None
    machine.write(f"cg/pod/{file}", f"{1500 * 2**20}\n")
    assert memory_limit_bytes(PID, proc=machine.proc) == 1500 * 2**20
    machine.write(f"cg/pod/container/{file}", f"{300 * 2**20}\n")
    assert memory_limit_bytes(PID, proc=machine.proc) == 300 * 2**20


def test_version_1_tells_the_limits_above_what_a_container_has_mounted(machine: Machine) -> None:
    machine.mount(V1, "memory", root="/docker/abc")
    machine.is_in("4:memory:/docker/abc")
    machine.write("memory/memory.limit_in_bytes", f"{2**63 - 4096}\n")
    machine.write("memory/memory.stat", "cache 1\nhierarchical_memory_limit 1073741824\n")
    assert memory_limit_bytes(PID, proc=machine.proc) == 2**30


def test_a_namespaces_root_of_version_2_has_the_containers_limits(machine: Machine) -> None:
    machine.mount(V2, "cg")
    machine.is_in("0::/")
    machine.write("cg/memory.max", "1073741824\n")
    machine.write("cg/cpu.max", "50000 100000\n")
    assert memory_limit_bytes(PID, proc=machine.proc) == 2**30
    assert cpu_quota_cores(PID, proc=machine.proc) == 0.5


def test_a_hybrid_machine_has_its_limits_where_the_controllers_are(machine: Machine) -> None:
    machine.mount(V2, "unified")
    machine.mount(V1, "memory")
    machine.mount(CPU_V1, "cpu")
    machine.is_in("5:cpu,cpuacct:/x", "4:memory:/agents", "0::/agent.service")
    machine.write("unified/agent.service/cgroup.procs", "")
    machine.write("memory/agents/memory.limit_in_bytes", "1073741824\n")
    machine.write("cpu/x/cpu.cfs_quota_us", "250000\n")
    machine.write("cpu/x/cpu.cfs_period_us", "100000\n")
    assert memory_limit_bytes(PID, proc=machine.proc) == 2**30
    assert cpu_quota_cores(PID, proc=machine.proc) == 2.5


@pytest.mark.parametrize(
    ("quota", "ranks"), [("max", ["ranks:2"]), ("150000", []), ("200000", ["ranks:2"])]
)
def test_an_agent_takes_no_more_ranks_than_its_quota_has_cores(
    machine: Machine, tmp_path: Path, quota: str, ranks: list[str]
) -> None:
    machine.mount(V2, "cg")
    machine.write(f"proc/{os.getpid()}/cgroup", "0::/\n")
    machine.write("cg/cpu.max", f"{quota} 100000\n")
    environ = {"AGENT_STATE_DIR": str(tmp_path / "state"), "AGENT_CLOUD": "never"}
    config = dataclasses.replace(load_config(environ), cpus=(0, 1))
    found = read_facts(config, proc=machine.proc).capabilities
    assert [name for name in found if name.startswith("ranks:")] == ranks


def test_the_smallest_quota_above_a_group_is_its_own(machine: Machine) -> None:
    machine.mount(V2, "cg")
    machine.is_in("0::/pod/container")
    machine.write("cg/pod/container/cpu.max", "max 100000\n")
    assert cpu_quota_cores(PID, proc=machine.proc) is None
    machine.write("cg/pod/cpu.max", "150000 100000\n")
    assert cpu_quota_cores(PID, proc=machine.proc) == 1.5
    machine.write("cg/pod/container/cpu.max", "400000 100000\n")
    assert cpu_quota_cores(PID, proc=machine.proc) == 1.5


def test_version_1_without_a_quota_says_minus_one(machine: Machine) -> None:
    machine.mount(CPU_V1, "cpu")
    machine.is_in("5:cpu,cpuacct:/x")
    machine.write("cpu/x/cpu.cfs_quota_us", "-1\n")
    machine.write("cpu/x/cpu.cfs_period_us", "100000\n")
    assert cpu_quota_cores(PID, proc=machine.proc) is None


def test_no_control_groups_no_limits(machine: Machine) -> None:
    assert memory_limit_bytes(PID, proc=machine.proc) is None
    assert cpu_quota_cores(PID, proc=machine.proc) is None


@pytest.mark.parametrize(
    ("quota", "cores"), [(None, 4), ("400000", 4), ("800000", 4), ("200000", 2), ("150000", 1.5)]
)
def test_cores_are_those_that_the_quota_allows_for(
    machine: Machine, quota: str | None, cores: float
) -> None:
    machine.mount(V2, "cg")
    machine.write(f"proc/{os.getpid()}/cgroup", "0::/container\n")
    if quota is not None:
        machine.write("cg/container/cpu.max", f"{quota} 100000\n")
    assert own_core_count(range(4), proc=machine.proc) == cores
