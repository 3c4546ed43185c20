"""Disturbances of this very machine, as the agent's groups and its control run see them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from farm.messages.commands import RankAddress
from farm.messages.reports import PeersMeasured, RankEnded
from tests.machine.agents import AgentFarm
from worker_agent.metrics import cpu
from worker_agent.metrics.contracts import Watched
from worker_agent.network.probing.probe import EchoServer, measure_peers
from worker_agent.rank.control_run import run_control

pytestmark = pytest.mark.alone

_V1 = Path("/sys/fs/cgroup/cpu")
_V2 = Path("/sys/fs/cgroup")
_BURN = "while True: pass"
CORE = min(os.sched_getaffinity(0))


@contextmanager
def quota(*, busy_us: int, period_us: int = 100_000) -> Iterator[Path]:
    """Make a cgroup with a CPU quota, but first in the queue; it goes once its processes have."""
    is_v1 = (_V1 / "cpu.cfs_quota_us").exists() or (_V1 / "cpu.shares").exists()
    folder = (_V1 if is_v1 else _V2) / f"benchfarm-test-{os.getpid()}"
    try:
        folder.mkdir()
        if is_v1:
            (folder / "cpu.cfs_period_us").write_text(str(period_us))
            (folder / "cpu.cfs_quota_us").write_text(str(busy_us))
            (folder / "cpu.shares").write_text("262144")
        else:
            (folder / "cpu.max").write_text(f"{busy_us} {period_us}")
            (folder / "cpu.weight").write_text("10000")
    except OSError as error:
        if folder.is_dir():
            folder.rmdir()
        pytest.skip(f"no CPU quota can be set here: {error}")
    try:
        yield folder
    finally:
        deadline = time.monotonic() + 10
        while (folder / "cgroup.procs").read_text() and time.monotonic() < deadline:
            time.sleep(0.01)
        folder.rmdir()


@contextmanager
def burner(*, core: int | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process that wants a whole core."""
    process = subprocess.Popen([sys.executable, "-c", _BURN])
    try:
        if core is not None:
            os.sched_setaffinity(process.pid, {core})
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may set a quota")
def test_a_quota_of_a_fifth_of_a_core_shows_as_four_fifths_throttled() -> None:
    with quota(busy_us=20_000) as folder, burner() as process:
        (folder / "cgroup.procs").write_text(str(process.pid))
        watched = Watched(cpus=(CORE,), interface="lo", pids=(process.pid,))
        metric = cpu.create_throttling(watched)
        assert metric is not None
        assert metric.read(0) == {"throttled_ratio": None}
        ratios: list[float] = []
        # What else this core does delays the burner as well, so that it is held back for less.
        while max(ratios, default=0.0) < 0.65 and len(ratios) < 30:
            begun = time.monotonic()
            while time.monotonic() - begun < 1.0:
                time.sleep(0.05)
            ratios.append(metric.read(len(ratios) + 1)["throttled_ratio"] or 0.0)
    assert max(ratios) == pytest.approx(0.8, abs=0.15)


def test_without_a_quota_nothing_is_throttled() -> None:
    watched = Watched(cpus=(CORE,), interface="lo", pids=(os.getpid(),))
    metric = cpu.create_throttling(watched)
    if metric is None:
        pytest.skip("no CPU controller counts here")
    metric.read(0)
    assert metric.read(1) == {"throttled_ratio": 0.0}


def test_the_control_run_leaves_this_process_where_it_was() -> None:
    before = os.sched_getaffinity(0)
    threads = threading.active_count()
    assert run_control((CORE,)) is not None
    assert os.sched_getaffinity(0) == before
    assert threading.active_count() == threads


def test_the_control_run_takes_longer_beside_busy_processes() -> None:
    # The better of three, each: whatever else runs on this machine only makes it slower. Four, so
    # that they count beside what else is busy there.
    alone_s = min(run_control((CORE,)) or 0.0 for _ in range(3))
    with ExitStack() as burners:
        for _ in range(4):
            burners.enter_context(burner(core=CORE))
        beside_s = min(run_control((CORE,)) or 0.0 for _ in range(3))
    assert alone_s > 0
    assert beside_s > 1.3 * alone_s


def test_a_core_that_is_not_there_means_no_control_run() -> None:
    assert run_control((CORE, 4000)) is None


def test_a_control_run_ends_at_its_limit() -> None:
    begun = time.monotonic()
    with burner(core=CORE):
        assert run_control((CORE,), most_s=0.0) is not None
    assert time.monotonic() - begun < 10.0


def test_a_control_run_whose_threads_cannot_start_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start, started = threading.Thread.start, list[str]()

    def start_one(thread: threading.Thread) -> None:
        if started:
            raise RuntimeError("can't start new thread")
        started.append(thread.name)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_one)
    threads = threading.active_count()
    assert run_control((CORE, CORE)) is None
    assert threading.active_count() == threads


def test_an_agent_reports_its_control_run_before_go(tmp_path: Path) -> None:
    with AgentFarm(tmp_path) as farm:
        agents = [farm.agent(AGENT_CPUS=str(CORE)), farm.agent(AGENT_CPUS=str(CORE))]
        gang = farm.gang(1, *agents)
        gang.lead_to_go()
        for measured in gang.wait_for(PeersMeasured):
            assert measured.control_s is not None
            assert 0.001 < measured.control_s < 5.0
        gang.wait_for(RankEnded)


def test_the_control_run_waits_until_the_peers_have_probed_but_not_for_ever() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    address = RankAddress(
        rank=1, host="127.0.0.1", probe_port=listener.getsockname()[1], trainer_ports=()
    )
    echo = EchoServer(listener)
    try:
        measure_peers([address], own_rank=0, timeout_s=5)
        begun = time.monotonic()
        echo.await_probes(1, timeout_s=10)
        assert time.monotonic() - begun < 5
        begun = time.monotonic()
        echo.await_probes(1, timeout_s=0.2)
        assert time.monotonic() - begun >= 0.2
    finally:
        echo.close()
