"""Starts a gang without the farm; its processes train only while it is their turn."""

from __future__ import annotations

import json
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

import psutil

from benchmarks.figures import root
from benchmarks.training.by_hand import TIMED_STEPS
from farm.embedded.redis import free_port
from farm.embedded.signals import StopSignals
from farm.errors import FarmError

RUN_LIMIT_S = 120.0
_POLL_S = 0.02


class GangByHand:
    """One process for each core. Close it in the end, whatever happened."""

    def __init__(self, cores: Sequence[int]) -> None:
        ports = [str(free_port()) for _ in cores]
        command = [sys.executable, "-P", "-m", "benchmarks.training.by_hand"]
        self._ranks = [
            subprocess.Popen(
                [*command, str(rank), str(core), *ports],
                cwd=root(),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            for rank, core in enumerate(cores)
        ]

    @property
    def pids(self) -> list[int]:
        return [rank.pid for rank in self._ranks]

    @property
    def is_done(self) -> bool:
        return any(rank.poll() is not None for rank in self._ranks)

    def get_ready(self, signals: StopSignals) -> None:
        """Wait until it has built everything, warmed up, and stands still.

        Raises:
            FarmError: it did not within the limit of a run, or ended.
        """
        deadline = time.monotonic() + RUN_LIMIT_S
        while not all(map(_stands_still, self._ranks)):
            if self.is_done:
                codes = [rank.poll() for rank in self._ranks]
                raise FarmError(f"by hand: the ranks ended before they trained: {codes}")
            if time.monotonic() > deadline:
                raise FarmError(f"by hand: not ready within {RUN_LIMIT_S:g} s")
            signals.pause(_POLL_S)

    def train_for(self, duration_s: float, signals: StopSignals) -> None:
        self._signal(signal.SIGCONT)
        signals.pause(duration_s)
        self._signal(signal.SIGSTOP)

    def finish(self) -> float:
        """Train to the end; return the median of rank 0's timed steps."""
        self._signal(signal.SIGCONT)
        deadline = time.monotonic() + RUN_LIMIT_S
        try:
            outputs = [
                rank.communicate(timeout=deadline - time.monotonic()) for rank in self._ranks
            ]
        except subprocess.TimeoutExpired:
            raise FarmError(f"by hand: the ranks were not done within {RUN_LIMIT_S:g} s") from None
        if any(rank.returncode != 0 for rank in self._ranks):
            raise FarmError(f"by hand: the ranks ended with {[r.returncode for r in self._ranks]}")
        return median_step_s(json.loads(outputs[0][0])["step_times_s"])

    def close(self) -> None:
        """Kill every rank."""
        for rank in self._ranks:
            rank.kill()
            rank.wait()

    def _signal(self, number: signal.Signals) -> None:
        for rank in self._ranks:
            rank.send_signal(number)


def median_step_s(times_s: Sequence[float]) -> float:
    """Return the median of all timed steps of a run.

    Raises:
        FarmError: there are more of them, or fewer.
    """
    if len(times_s) != TIMED_STEPS:
        raise FarmError(f"{len(times_s)} timed steps, expected {TIMED_STEPS}")
    return statistics.median(times_s)


def _stands_still(rank: subprocess.Popen[bytes]) -> bool:
    return psutil.Process(rank.pid).status() == psutil.STATUS_STOPPED
