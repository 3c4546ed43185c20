"""The sampler's grid, and what its groups make of the kernel's numbers."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from farm.messages.reports import Sample
from farm.sampling.ticks import Rates
from worker_agent.metrics import METRICS, cpu, machine
from worker_agent.metrics.contracts import Watched
from worker_agent.metrics.sampler import Sampler, create_metrics, read_sample

WATCHED = Watched(cpus=tuple(sorted(os.sched_getaffinity(0))), interface="lo", pids=(os.getpid(),))
STAT = """cpu  9 9 9 9 9 9 9 9 0 0
cpu0 100 10 50 800 20 5 10 5 3 0
cpu1 0 0 0 1000 0 0 0 0 0 0
cpu10 7 7 7 7 7 7 7 7 0 0
intr 12 34
"""
DISKSTATS = """   8       0 vda 100 5 2000 7 50 3 400 9 0 1 2 0 0 0 0 0 0
   8       1 vda1 90 5 1900 7 40 3 300 9 0 1 2 0 0 0 0 0 0
   7       0 loop0 10 0 80 0 0 0 0 0 0 0 0 0 0 0 0 0 0
"""


class Recorded:
    """A group whose readings take as long as a test says."""

    def __init__(self, pauses_s: Mapping[int, float] | None = None) -> None:
        self.pauses_s = pauses_s or {}
        self.ticks: list[int] = []

    def read(self, tick: int) -> dict[str, float | int | None]:
        self.ticks.append(tick)
        time.sleep(self.pauses_s.get(tick, 0.0))
        return {"memory_used_bytes": tick, "gpu0_ratio": 0.5}


class Broken:
    def read(self, tick: int) -> dict[str, float | int | None]:
        raise psutil.AccessDenied


class Emitted:
    def __init__(self, *, stop_at: int) -> None:
        self.samples: list[Sample] = []
        self.is_done = threading.Event()
        self._stop_at = stop_at

    def __call__(self, samples: tuple[Sample, ...]) -> None:
        self.samples += samples
        if samples[-1].tick >= self._stop_at:
            self.is_done.set()

    @property
    def ticks(self) -> list[int]:
        return [sample.tick for sample in self.samples]


def run(metric: Recorded, *, stop_at: int, go_s: float | None = None) -> Emitted:
    emitted = Emitted(stop_at=stop_at)
    sampler = Sampler([metric], go_s=time.monotonic() if go_s is None else go_s, emit=emitted)
    sampler.start()
    assert emitted.is_done.wait(10)
    sampler.stop()
    return emitted


def test_ticks_are_consecutive_from_zero() -> None:
    assert run(Recorded(), stop_at=1).ticks == [0, 1]


def test_a_tick_that_was_slept_through_is_a_hole_and_is_not_caught_up() -> None:
    # The reading of tick 0 takes until 1.6 s after go: tick 1 has passed, tick 2 is in time.
    emitted = run(Recorded({0: 1.6}), stop_at=2)
    assert emitted.ticks == [0, 2]


def test_a_sampler_that_starts_late_begins_with_a_hole() -> None:
    emitted = run(Recorded(), stop_at=6, go_s=time.monotonic() - 4.6)
    assert emitted.ticks == [5, 6]


def test_stopping_hands_over_what_was_read() -> None:
    metric = Recorded()
    emitted = Emitted(stop_at=99)
    sampler = Sampler([metric], go_s=time.monotonic(), emit=emitted)
    sampler.start()
    deadline = time.monotonic() + 5
    while not metric.ticks and time.monotonic() < deadline:
        time.sleep(0.01)
    sampler.stop()
    assert emitted.ticks == [0]


def test_stopping_a_sampler_that_never_started_is_harmless() -> None:
    Sampler([], go_s=0.0, emit=Emitted(stop_at=0)).stop()


def test_what_is_no_column_becomes_an_extra_and_a_broken_group_takes_nothing_with_it() -> None:
    sample = read_sample([Recorded(), Broken()], 3)
    assert sample == Sample(tick=3, memory_used_bytes=3, extra={"gpu0_ratio": 0.5})


def test_rates_are_none_first_after_a_hole_and_after_a_reset() -> None:
    rates = Rates()
    assert rates.update(0, {"rx": 100}) == {"rx": None}
    assert rates.update(1, {"rx": 150}) == {"rx": 50.0}
    assert rates.update(3, {"rx": 250}) == {"rx": None}
    assert rates.update(4, {"rx": 250}) == {"rx": 0.0}
    assert rates.update(5, {"rx": 10}) == {"rx": None}


def test_only_the_agents_cores_count_and_stolen_time_is_not_busy() -> None:
    assert cpu.parse_stat(STAT, {0, 1}) == {
        "busy": 175,
        "interrupt": 15,
        "steal": 5,
        "total": 2000,
    }
    assert cpu.parse_stat(STAT, {1})["total"] == 1000


def test_cpu_and_steal_are_shares_of_the_kernels_own_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat = tmp_path / "stat"
    monkeypatch.setattr(cpu, "PROC_STAT", stat)
    metric = cpu.CpuMetric((0,))
    stat.write_text("cpu0 100 0 0 900 0 0 0 0 0 0\n")
    unknown = {
        "machine_cpu_ratio": None,
        "machine_steal_ratio": None,
        "machine_interrupt_ratio": None,
    }
    assert metric.read(0) == unknown
    stat.write_text("cpu0 140 0 0 930 0 4 6 20 0 0\n")
    assert metric.read(1) == {
        "machine_cpu_ratio": 0.5,
        "machine_steal_ratio": 0.2,
        "machine_interrupt_ratio": 0.1,
    }
    assert metric.read(2) == unknown


def test_partitions_and_loop_devices_are_not_counted_twice() -> None:
    assert machine.parse_diskstats(DISKSTATS, {"vda"}) == {
        "disk_read_bytes_per_s": 2000 * 512,
        "disk_write_bytes_per_s": 400 * 512,
        "disk_read_operations_per_s": 100,
        "disk_write_operations_per_s": 50,
    }


# Says so when it has used 0.2 s of CPU time, once for every line that it is sent.
BURNER = """
import sys, time
for _ in sys.stdin:
    begun = time.process_time()
    while time.process_time() - begun < 0.2:
        pass
    print("burnt", flush=True)
"""


def test_the_cpu_time_of_the_tree_is_a_share_of_the_agents_cores() -> None:
    from worker_agent.metrics.processes import ProcessesMetric

    with subprocess.Popen(
        [sys.executable, "-c", BURNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as burner:

        def burn() -> None:
            assert burner.stdin is not None
            assert burner.stdout is not None
            burner.stdin.write(b"burn\n")
            burner.stdin.flush()
            assert burner.stdout.readline() == b"burnt\n"

        burn()  # it has started by then
        metric = ProcessesMetric((burner.pid,), core_count=1)
        first = metric.read(0)
        assert first["cpu_ratio"] is None
        rss_bytes = psutil.Process(burner.pid).memory_info().rss
        assert first["resident_bytes"] == pytest.approx(rss_bytes, rel=0.2)
        burn()
        second = metric.read(1)["cpu_ratio"]
        assert second is not None
        assert 0.15 < second < 0.6
        assert metric.read(3)["cpu_ratio"] is None
        burner.kill()


_PARENT = """
import subprocess, sys
while sys.stdin.readline():
    child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE)
    child.stdout.readline()
    print("busy", flush=True)
    sys.stdin.readline()
    child.communicate(b"end")
    print("ended", flush=True)
"""
_CHILD = """
import os, time
while time.process_time() < 0.3: pass
print(flush=True)
input()
while time.process_time() < 0.6: pass
"""


def test_what_a_child_uses_counts_from_its_first_moment_to_its_last() -> None:
    from worker_agent.metrics.processes import ProcessesMetric

    command = [sys.executable, "-c", _PARENT, _CHILD]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, bufsize=1, **pipes) as parent:  # type: ignore[call-overload] # the pipes
        metric = ProcessesMetric((parent.pid,), core_count=1)
        ticks = itertools.count()

        def go_on(until: str) -> float:
            parent.stdin.write("on\n")
            parent.stdin.flush()
            assert parent.stdout.readline() == f"{until}\n"
            ratio = metric.read(next(ticks))["cpu_ratio"]
            assert isinstance(ratio, float)
            return ratio

        metric.read(next(ticks))
        for _ in range(2):
            assert go_on("busy") == pytest.approx(0.3, abs=0.15)
            assert go_on("ended") == pytest.approx(0.3, abs=0.1)
        parent.kill()


def test_a_tree_without_processes_has_nothing_to_measure() -> None:
    from worker_agent.metrics.processes import ProcessesMetric

    metric = ProcessesMetric((2**22 + 1,), core_count=1)
    assert set(metric.read(0).values()) == {None}


@contextmanager
def started(work: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of its own that has begun its work, and is killed at last."""
    command = [sys.executable, "-c", f"print(flush=True)\n{work}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def test_each_role_has_its_own_share_where_a_rank_has_several() -> None:
    from worker_agent.metrics.processes import ProcessesMetric

    with started("while True: pass") as busy, started("input()") as idle:
        metric = ProcessesMetric((busy.pid, idle.pid), core_count=1, roles=("worker", "ps"))
        first = metric.read(0)
        own = (first["worker_resident_bytes"] or 0, first["ps_resident_bytes"] or 0)
        assert sum(own) == first["resident_bytes"]
        assert own[0] == pytest.approx(psutil.Process(busy.pid).memory_info().rss, rel=0.2)
        begun_s = psutil.Process(busy.pid).cpu_times().user
        deadline = time.monotonic() + 30
        while psutil.Process(busy.pid).cpu_times().user < begun_s + 0.2:
            assert time.monotonic() < deadline
        second = metric.read(1)
        assert (second["worker_cpu_ratio"] or 0) > 0.1 > (second["ps_cpu_ratio"] or 0)
    alone = ProcessesMetric((os.getpid(),), core_count=1, roles=("worker",)).read(0)
    assert not [name for name in alone if name.startswith("worker_")]


def test_calls_that_read_and_write_are_counted() -> None:
    from worker_agent.metrics.processes import ProcessesMetric

    metric = ProcessesMetric((os.getpid(),), core_count=1)
    metric.read(0)
    with open(os.devnull, "wb", buffering=0) as sink:  # noqa: PTH123 # unbuffered
        for _ in range(500):
            sink.write(b".")
    assert (metric.read(1)["trainer_write_operations_per_s"] or 0) >= 500


@pytest.mark.parametrize("factory", METRICS, ids=lambda factory: factory.__module__)
def test_every_group_reads_values_that_a_sample_takes(factory: object) -> None:
    metrics = create_metrics([factory], WATCHED)  # type: ignore[list-item] # from the registry
    for tick in (0, 1):
        sample = read_sample(metrics, tick)
        assert sample.tick == tick
        for name, value in sample.extra.items():
            assert name.startswith(("gpu", "cpu_", "machine_", "memory_", "thermal_", "trainer_"))
            assert value >= 0
