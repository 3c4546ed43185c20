"""Step time of a training through the farm, against the same training started by hand.

By hand is `benchmarks/by_hand.py`: plain TensorFlow with TF_CONFIG, written without the farm's
trainers; model, optimizer, examples, batches, threads, warm-up and the number of steps are the
same. Through the farm it is a job like any other: agents with sampler, spool and heartbeats,
scheduler, collector, Redis and store are real and at work.

Both trainings of a pair are there at the same time and take turns of some seconds, ABBA over pairs:
while one trains, every process of the other stands still (SIGSTOP), the whole farm if it is the one
by hand, so that by hand means without a farm. So whatever makes a machine slower for some seconds
slows down both alike; one run after the other differed by 10 % on the machine of the table. A step
that is interrupted by a turn counts with its seconds of waiting, which a median does not see.

Every rank, either way, is bound to one core. Where the rest runs:

- One rank: on core A, and with it on core A everything that belongs to its agent, as on a VM of
  one core. The server's processes (Redis, scheduler, collector, web) are bound to core B, as on
  another machine.
- Two ranks: on cores A and B, each with its agent. The server's processes have no core of their
  own and run where the kernel puts them, on a core of a rank, which a real gang would not see.

A run's figure is the median time of rank 0's timed steps; a pair's is the ratio of the two. Limits,
with one rank and with two: the median over the pairs at most 1.02, the upper bound of its 95 %
bootstrap interval at most 1.05.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

import psutil
import sqlalchemy as sa

from benchmarks.affinity import bind_farm, farm_processes, frozen
from benchmarks.by_hand import BATCH_SIZE, DATASET, MODEL, TIMED_STEPS, WARMUP_STEPS
from benchmarks.figures import Figure, at_least, root, run_benchmark, say
from benchmarks.live import BenchmarkFarm, running_farm
from benchmarks.pairs import alternating, paired_ratio
from farm.core.lifecycle import AttemptState
from farm.core.trainer_lines import StepKind
from farm.embedded.redis import free_port
from farm.errors import FarmError
from farm.store.agents import set_drained
from farm.store.engine import reading, writing
from farm.store.series import steps_of
from farm.store.tables import Attempt, Job

PAIR_COUNT = 20
WORLD_SIZES = (1, 2)
MEDIAN_LIMIT, UPPER_LIMIT = 1.02, 1.05
_RUN_LIMIT_S = 120.0
# Whatever the farm does once a second is due at the begin of a turn, and so is done once too often
# in each: the longer a turn, the less that counts. But a rank of the farm that is not heard of for
# 5 s is lost, and beats every 2.5 s.
_TURN_S = 1.5
_POLL_S = 0.02


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--pairs", type=at_least(1), default=PAIR_COUNT, help="of one and of two ranks"
    )
    parser.add_argument("--ranks", type=int, choices=WORLD_SIZES, help="of one of the two only")


def measure(given: argparse.Namespace) -> list[Figure]:
    """Measure one rank and two with one farm of two agents."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        raise FarmError("overhead: expected at least two cores, got one")
    pair_count = 1 if given.quick else given.pairs
    figures: list[Figure] = []
    with running_farm(agents=len(cores), settings={}) as farm:
        for world_size in WORLD_SIZES if given.ranks is None else (given.ranks,):
            with writing(farm.engine) as session:
                # A gang of one shall get the agent of the core that is compared.
                set_drained(session, farm.embedded.agent_ids[1], is_drained=world_size == 1)
            bind_farm(server_cores=cores[1:] if world_size == 1 else cores)
            figures += compare(farm, cores[:world_size], pair_count=pair_count)
    return figures


def compare(farm: BenchmarkFarm, cores: Sequence[int], *, pair_count: int) -> list[Figure]:
    """Run pairs of one width; return the figure of the median and that of its upper bound."""
    ranks = "1 rank" if len(cores) == 1 else f"{len(cores)} ranks"
    ours_s: list[float] = []
    by_hand_s: list[float] = []
    for number, is_ours_first in enumerate(alternating(pair_count), start=1):
        token, times_s = run_pair(farm, cores, is_ours_first=is_ours_first)
        ours_s.append(through_farm_s(farm, token))
        by_hand_s.append(_median_of_all(times_s))
        say(
            f"{ranks}, pair {number}/{pair_count}: {ours_s[-1] * 1e3:.3f} ms, by hand "
            f"{by_hand_s[-1] * 1e3:.3f} ms, ratio {ours_s[-1] / by_hand_s[-1]:.4f}"
        )
    ratio = paired_ratio(ours_s, by_hand_s)
    ours, baseline = statistics.median(ours_s), statistics.median(by_hand_s)
    return [
        Figure(
            name=f"step time, {ranks}, {what}",
            unit="s",
            ours=ours,
            baseline=baseline,
            against="started by hand",
            ratio=value,
            limit=f"ratio at most {limit:g}",
            reached=value <= limit,
            note=f"{pair_count} pairs of {TIMED_STEPS} steps",
        )
        for what, value, limit in (
            ("median of the pairs", ratio.median, MEDIAN_LIMIT),
            ("upper bound (95 %)", ratio.high, UPPER_LIMIT),
        )
    ]


def run_pair(
    farm: BenchmarkFarm, cores: Sequence[int], *, is_ours_first: bool
) -> tuple[int, list[float]]:
    """Train both ways in turns; return the job's token and the times of rank 0's steps by hand."""
    with frozen(farm_processes()):
        by_hand = ByHand(cores)
        try:
            by_hand.wait_until_ready(farm)
        except BaseException:
            by_hand.kill()
            raise
    try:
        farm.await_beats()
        sweep_id, token = _start_job(farm, world_size=len(cores))
        # Looked for once: it takes some milliseconds of a core, and one of the two is training.
        processes = farm_processes(all_but=by_hand.pids)
        if is_ours_first:
            farm.signals.pause(_TURN_S)
        is_over = False
        while not is_over:
            with frozen(processes):
                by_hand.train_for(farm, _TURN_S)
                is_over = by_hand.is_done or farm.is_over(sweep_id)
            farm.signals.pause(_TURN_S)
        with frozen(processes):
            times_s = by_hand.finish()
    finally:
        by_hand.kill()
    farm.finish(sweep_id, within_s=_RUN_LIMIT_S)
    farm.wait_until_idle()
    return token, times_s


def _start_job(farm: BenchmarkFarm, *, world_size: int) -> tuple[int, int]:
    """Submit the job and wait until its ranks train; return its sweep and its attempt's token."""
    sweep_id = farm.submit(
        model=MODEL,
        dataset=DATASET,
        strategy="single" if world_size == 1 else "mwms_ring",
        world_size=world_size,
        global_batch_size=BATCH_SIZE * world_size,
        steps=TIMED_STEPS,
        warmup_steps=WARMUP_STEPS,
    )

    def started_token() -> int | None:
        with reading(farm.engine) as session:
            return session.scalar(
                sa.select(Attempt.id)
                .join(Job, Job.id == Attempt.job_id)
                .where(Job.sweep_id == sweep_id, Attempt.started_at.is_not(None))
            )

    return sweep_id, farm.wait_for(started_token, "a job that trains", within_s=_RUN_LIMIT_S)


def through_farm_s(farm: BenchmarkFarm, token: int) -> float:
    """Return the median of rank 0's timed steps.

    Raises:
        FarmError: the farm voided the attempt, and tried again without turns.
    """
    with reading(farm.engine) as session:
        attempt = session.get_one(Attempt, token)
        if attempt.state is not AttemptState.SUCCEEDED:
            raise FarmError(f"attempt {token} {attempt.state.value}: {attempt.reason}")
        chunks = steps_of(session, token, rank=0)
    return _median_of_all(
        [t for chunk in chunks if chunk.kind is StepKind.TIMED for t in chunk.times_s]
    )


class ByHand:
    """One process for each core. Kill it in the end, whatever happened."""

    def __init__(self, cores: Sequence[int]) -> None:
        ports = [str(free_port()) for _ in cores]
        self._ranks = [
            subprocess.Popen(
                [sys.executable, "-P", "-m", "benchmarks.by_hand", str(rank), str(core), *ports],
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

    def wait_until_ready(self, farm: BenchmarkFarm) -> None:
        """Wait until each rank has stopped itself, its warm-up done."""
        deadline = time.monotonic() + _RUN_LIMIT_S
        processes = [psutil.Process(pid) for pid in self.pids]
        while not all(process.status() == psutil.STATUS_STOPPED for process in processes):
            if self.is_done or time.monotonic() > deadline:
                codes = [rank.poll() for rank in self._ranks]
                raise FarmError(f"by hand: not ready within {_RUN_LIMIT_S:g} s, ended: {codes}")
            farm.signals.pause(_POLL_S)

    def train_for(self, farm: BenchmarkFarm, duration_s: float) -> None:
        self._signal(signal.SIGCONT)
        farm.signals.pause(duration_s)
        self._signal(signal.SIGSTOP)

    def finish(self) -> list[float]:
        """Train to the end; return the seconds of each timed step of rank 0."""
        self._signal(signal.SIGCONT)
        deadline = time.monotonic() + _RUN_LIMIT_S
        try:
            outputs = [
                rank.communicate(timeout=deadline - time.monotonic()) for rank in self._ranks
            ]
        except subprocess.TimeoutExpired:
            raise FarmError(f"by hand: the ranks were not done within {_RUN_LIMIT_S:g} s") from None
        if any(rank.returncode != 0 for rank in self._ranks):
            raise FarmError(f"by hand: the ranks ended with {[r.returncode for r in self._ranks]}")
        times_s: list[float] = json.loads(outputs[0][0])["step_times_s"]
        return times_s

    def kill(self) -> None:
        for rank in self._ranks:
            rank.kill()
            rank.wait()

    def _signal(self, number: signal.Signals) -> None:
        for rank in self._ranks:
            rank.send_signal(number)


def _median_of_all(times_s: Sequence[float]) -> float:
    if len(times_s) != TIMED_STEPS:
        raise FarmError(f"{len(times_s)} timed steps, expected {TIMED_STEPS}")
    return statistics.median(times_s)


if __name__ == "__main__":
    sys.exit(run_benchmark(__doc__, measure, options=add_options))
