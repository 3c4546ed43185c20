"""Runs jobs of several ranks by a shell loop, as in a batch script for Slurm.

A turn of the loop has a process group of its own, of which nothing is left when the turn is over,
however it ends: what waits for it may be told to stop by a Ctrl-C that nobody else hears.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.jobs.makespans import Played
from benchmarks.jobs.rank_by_hand import (
    LIMIT_S,
    WORLD_SIZE,
    Work,
    assignment_line,
    go_line,
    steps_s,
)
from benchmarks.stopping import end_group
from farm.embedded.redis import free_port
from farm.errors import FarmError

_SCRIPT = """
for job in {jobs}; do
  for rank in {ranks}; do
    exec 3<>"$job.$rank.in"
    cat "$job.$rank.lines" >&3
    {trainer} <&3 >"$job.$rank.out" 2>/dev/null 3>&- &
    exec 3>&-
  done
  wait
done
"""
_LOOK_EVERY_S = 0.01  # a hundredth of the shortest job at the most, and no load


class ShellLoop:
    """A loop as in a batch script: start both ranks, wait for both, go on to the next job.

    Peers are known beforehand, as from Slurm's list of hosts and ports that the script chooses.
    `pause` sleeps, and raises what it likes if the user asked for the end.
    """

    def __init__(self, folder: Path, *, pause: Callable[[float], None]) -> None:
        self._folder = folder
        self._pause = pause

    def play(self, work: Work, *, first_seed: int, job_count: int) -> Played:
        """Run the jobs one after the other from a shell script, and time them together."""
        seeds = range(first_seed, first_seed + job_count)
        orders = [work.order(rank) for rank in range(WORLD_SIZE)]
        for seed in seeds:
            addresses = [f"127.0.0.1:{free_port()}" for _ in orders]
            for rank, order in enumerate(orders):
                os.mkfifo(self._folder / f"{seed}.{rank}.in")  # stays open, as an agent's pipe does
                lines = assignment_line(order, seed=seed) + go_line(addresses, rank=rank)
                (self._folder / f"{seed}.{rank}.lines").write_text(lines)
        script = _SCRIPT.format(
            jobs=" ".join(map(str, seeds)),
            ranks=" ".join(map(str, range(WORLD_SIZE))),
            trainer=shlex.join(work.trainer),
        )
        makespan_s = self._run(script, orders[0]["environment"], within_s=LIMIT_S * job_count)
        return Played(makespan_s, tuple(self._steps_s(seed) for seed in seeds))

    def _run(self, script: str, environment: Mapping[str, str], *, within_s: float) -> float:
        begun_s = time.monotonic()
        loop = subprocess.Popen(
            ["bash", "-c", script],
            cwd=self._folder,
            env={**os.environ, **environment},
            process_group=0,
        )
        try:
            while loop.poll() is None:
                if time.monotonic() > begun_s + within_s:
                    raise FarmError(f"the loop of the shell was not done within {within_s:g} s")
                self._pause(_LOOK_EVERY_S)
            makespan_s = time.monotonic() - begun_s
        finally:
            end_group(loop)
        if loop.returncode:
            raise FarmError(f"the loop of the shell ended with status {loop.returncode}")
        return makespan_s

    def _steps_s(self, seed: int) -> float:
        outputs = [self._folder / f"{seed}.{rank}.out" for rank in range(WORLD_SIZE)]
        return max(steps_s(output.read_text().splitlines()) for output in outputs)
