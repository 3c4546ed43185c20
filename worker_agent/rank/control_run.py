"""The control run: a fixed piece of work on the agent's cores, to notice a slower machine.

It runs before an attempt, while the trainers wait and nothing is measured, and is compared with the
same agent's earlier runs (farm.measuring.control_run). Half of the work is arithmetic and half is
moving memory. All calls release Python's global lock, so the cores work in parallel.
"""

from __future__ import annotations

import hashlib
import logging
import mmap
import os
import statistics
import threading
import time
from collections.abc import Sequence

logger = logging.getLogger(__name__)

# About 10 ms each on a core of 2023 with SHA instructions. Scheduling slices are 3 to 4 ms, so a
# round beside another busy process takes twice as long, not once as long and once three times.
_BLOCK_BYTES = 4 * 2**20  # beyond the second-level cache, and bearable on a machine of many cores
_HASHES = 4
_MOVES = 20
_LENGTH_S = 0.25
# A median of five stands two rounds that were interrupted. Slow machines take longer than the
# length for them.
_LEAST_ROUNDS = 5
# A core that many others want must not keep the gang waiting at its barrier.
_MOST_S = 5.0


def run_control(cpus: Sequence[int], *, most_s: float = _MOST_S) -> float | None:
    """Return how long one round of the work took, in seconds: the slowest core's median.

    It takes a quarter of a second, and on cores that others want `most_s`, or 5 s at the most.

    Each of `cpus` works in a thread of its own, pinned to it; this process's own affinity stays.
    A round that was interrupted does not move a median, and a core that is slow throughout is
    not hidden by quick ones: a gang waits for the slowest. None where a core, a thread or the
    memory cannot be had.
    """
    try:
        source = _make_source()
    except OSError as error:
        logger.warning("control run was left out: %s", error)
        return None
    cores = [_Core(cpu, source, most_s=min(most_s, _MOST_S)) for cpu in cpus]
    begun: list[_Core] = []
    try:
        for core in cores:
            core.thread.start()
            begun.append(core)
    except RuntimeError as error:  # no new thread
        logger.warning("control run was left out: %s", error)
    finally:
        for core in begun:
            core.thread.join()
        os.close(source)
    medians = [core.median_s for core in cores]
    known = [median_s for median_s in medians if median_s is not None]
    return max(known) if known and len(known) == len(medians) else None


class _Core:
    """One core's share of the run; `median_s` holds once its thread is over."""

    def __init__(self, cpu: int, source: int, *, most_s: float) -> None:
        self._cpu = cpu
        self._source = source
        self._most_s = most_s
        self.median_s: float | None = None
        self.thread = threading.Thread(target=self._run, name=f"control-{cpu}", daemon=True)

    def _run(self) -> None:
        try:
            os.sched_setaffinity(0, {self._cpu})  # of this thread alone
            with mmap.mmap(-1, _BLOCK_BYTES) as target:
                self.median_s = statistics.median(
                    _rounds(self._source, target, most_s=self._most_s)
                )
        except OSError as error:
            logger.warning("control run was left out on core %d: %s", self._cpu, error)


def _make_source() -> int:
    source = os.memfd_create("benchfarm-control", os.MFD_CLOEXEC)
    os.ftruncate(source, _BLOCK_BYTES)
    os.pwrite(source, b"\1" * _BLOCK_BYTES, 0)
    return source


def _rounds(source: int, target: mmap.mmap, *, most_s: float) -> list[float]:
    begun_s = time.perf_counter()
    # The first round brings in the pages and lets the clock rise.
    _work(source, target)
    times_s = [_work(source, target)]
    while (passed_s := time.perf_counter() - begun_s) < most_s and (
        passed_s < _LENGTH_S or len(times_s) < _LEAST_ROUNDS
    ):
        times_s.append(_work(source, target))
    return times_s


def _work(source: int, target: mmap.mmap) -> float:
    begun_s = time.perf_counter()
    for _ in range(_HASHES):
        hashlib.sha256(target)
    for _ in range(_MOVES):
        os.preadv(source, [target], 0)
    return time.perf_counter() - begun_s
