"""Measures what sampling once a second costs, and whether busy cores make it lose samples.

The agent's own sampler reads all its metrics in a thread, once a second, for a tree of seven
processes, as long as `--seconds` says (10 minutes). As many processes as there are cores burn them
at normal priority all the while, so the sampler, at normal priority too, has to take its turn: six
of the tree's at most, and on a machine of more cores others beside it.
Its cost is the thread's CPU time by the kernel's clock; a lost tick is one for which the series has
no sample.

The baseline is a loop in another thread, half a second out of step, which asks psutil for the same
in the obvious way: cores, memory, swap, network, disks, and for each process below the root its CPU
times and memory.

Limits: 0.5 % of a core; no tick lost.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import psutil

from benchmarks.figures import BenchmarkFigure, at_least, run_benchmark, say
from farm.errors import FarmError
from farm.messages.reports import Sample
from farm.text.display import duration
from worker_agent.metrics import METRICS
from worker_agent.metrics.contracts import Watched
from worker_agent.metrics.sampler import Sampler, create_metrics

PROCESS_COUNT = 7
CORE_SHARE_LIMIT = 0.005
DEFAULT_S, QUICK_S = 600, 4
# The root starts its children, says so, and ends when its input does, as they do.
_TREE = """
import subprocess, sys
burning, sleeping = int(sys.argv[1]), int(sys.argv[2])
burn = "import os\\nparent = os.getppid()\\nwhile os.getppid() == parent: sum(range(100_000))"
rest = "import sys; sys.stdin.read()"
children = [subprocess.Popen([sys.executable, "-c", burn]) for _ in range(burning)]
children += [
    subprocess.Popen([sys.executable, "-c", rest], stdin=subprocess.PIPE) for _ in range(sleeping)
]
print("ready", flush=True)
sys.stdin.read()
for child in children:
    child.kill()
for child in children:
    child.wait()
"""


@dataclass(slots=True)
class Watch:
    """What the sampler's thread has handed over, and its CPU time between two handings-over."""

    samples: list[Sample] = field(default_factory=list)
    costed_count: int = 0  # samples after the first emission, which only starts the clock
    first_cpu_s: float | None = None
    cpu_s: float = 0.0

    def take(self, samples: tuple[Sample, ...]) -> None:
        """Called in the sampler's thread, as the agent's own receiver is."""
        self.samples += samples
        self.cpu_s = time.thread_time()
        if self.first_cpu_s is None:
            self.first_cpu_s = self.cpu_s
        else:
            self.costed_count += len(samples)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seconds", type=at_least(QUICK_S), default=DEFAULT_S, help="how long to sample"
    )


def measure(given: argparse.Namespace) -> list[BenchmarkFigure]:
    """Sample under load, and read the same naively beside it."""
    seconds = QUICK_S if given.quick else given.seconds
    core_count = len(os.sched_getaffinity(0))
    say(f"{seconds} s with {core_count} cores busy")
    with busy_tree(core_count) as root_pid:
        watch, naive_s = sample(root_pid, seconds=seconds)
    if not watch.costed_count or watch.first_cpu_s is None:
        raise FarmError(f"the sampler read {len(watch.samples)} samples in {seconds} s")
    lost_count = seconds - len({sample.tick for sample in watch.samples})
    cost_s = (watch.cpu_s - watch.first_cpu_s) / watch.costed_count
    return [
        BenchmarkFigure(
            name="sampling at 1 Hz, share of a core",
            unit="ratio",
            ours=cost_s,
            baseline=naive_s,
            against="naive psutil loop",
            limit=f"at most {CORE_SHARE_LIMIT * 100:g} %",
            reached=cost_s <= CORE_SHARE_LIMIT,
            note=f"{duration(cost_s)} of CPU time a sample, naively {duration(naive_s)}",
        ),
        BenchmarkFigure(
            name=f"lost ticks in {seconds} s under full load",
            unit="ticks",
            ours=lost_count,
            baseline=None,
            against="none",
            limit="0 ticks",
            reached=lost_count == 0,
            note=f"{len(watch.samples)} samples, {core_count} cores burning",
        ),
    ]


def sample(root_pid: int, *, seconds: int) -> tuple[Watch, float]:
    """Run the agent's sampler; return what it did, and a naive reading's mean CPU time in s."""
    watched = Watched(cpus=tuple(sorted(os.sched_getaffinity(0))), interface="lo", pids=(root_pid,))
    watch = Watch()
    naive = NaiveLoop(root_pid)
    go_s = time.monotonic()
    sampler = Sampler(create_metrics(METRICS, watched), go_s=go_s, emit=watch.take)
    sampler.start()
    naive.start()
    # Tick 0 is at the beginning, so `seconds` ticks end half a second before this.
    time.sleep(max(0.0, go_s + seconds - 0.5 - time.monotonic()))
    sampler.stop()
    return watch, naive.stop()


class NaiveLoop:
    """Reads once a second what the sampler reads, as one would write it first."""

    def __init__(self, root_pid: int) -> None:
        self._root = psutil.Process(root_pid)
        self._times_s: list[float] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> float:
        """Return the mean CPU time of a reading in seconds."""
        self._stopping.set()
        self._thread.join(timeout=10)
        return sum(self._times_s) / len(self._times_s)

    def _run(self) -> None:
        due_s = time.monotonic() + 0.5
        while not self._stopping.wait(max(0.0, due_s - time.monotonic())):
            due_s += 1.0
            begun_s = time.thread_time()
            self._read()
            self._times_s.append(time.thread_time() - begun_s)

    def _read(self) -> None:
        psutil.cpu_times(percpu=True)
        psutil.virtual_memory()
        psutil.swap_memory()
        psutil.net_io_counters(pernic=True)
        psutil.disk_io_counters()
        for process in [self._root, *self._root.children(recursive=True)]:
            process.cpu_times()
            process.memory_info()


@contextmanager
def busy_tree(core_count: int) -> Iterator[int]:
    """Keep every core burning, by a tree of seven processes and others; yield the tree's root."""
    burning = min(core_count, PROCESS_COUNT - 1)
    with (
        tree(burning=burning, sleeping=PROCESS_COUNT - 1 - burning) as root_pid,
        tree(burning=core_count - burning, sleeping=0),
    ):
        yield root_pid


@contextmanager
def tree(*, burning: int, sleeping: int) -> Iterator[int]:
    """Keep a process with so many children; yield its id."""
    command = [sys.executable, "-c", _TREE, str(burning), str(sleeping)]
    # Not in our group: a Ctrl-C is for us, and they end with us.
    root = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0)
    assert root.stdin
    assert root.stdout
    try:
        root.stdout.readline()
        yield root.pid
    finally:
        root.stdin.close()
        root.wait(timeout=15)
        root.stdout.close()


if __name__ == "__main__":
    sys.exit(run_benchmark(__doc__, measure, options=add_options))
