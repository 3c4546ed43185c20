"""Step time of a training through the farm, against the same training started by hand.

By hand is `benchmarks/by_hand.py`: plain TensorFlow with TF_CONFIG, written without the farm's
trainers; model, optimizer, examples, batches, threads, warm-up and the number of steps are the
same. Through the farm it is a job like any other: agents with sampler, spool and heartbeats,
scheduler, collector, Redis and store are real and at work. Pairs of both run one right after the
other, in turn first and second (ABBA), all with one farm. While a training runs by hand, every
process of the farm is stopped (SIGSTOP), so that by hand means without a farm.

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
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

import sqlalchemy as sa

from benchmarks.affinity import bind_farm, frozen
from benchmarks.by_hand import BATCH_SIZE, DATASET, MODEL, TIMED_STEPS, WARMUP_STEPS
from benchmarks.figures import Figure, at_least, root, run_benchmark, say
from benchmarks.live import BenchmarkFarm, running_farm
from benchmarks.pairs import alternating, paired_ratio
from farm.core.trainer_lines import StepKind
from farm.embedded.redis import free_port
from farm.errors import FarmError
from farm.store.agents import set_drained
from farm.store.engine import reading, writing
from farm.store.series import steps_of
from farm.store.tables import Attempt

PAIR_COUNT = 20
MEDIAN_LIMIT, UPPER_LIMIT = 1.02, 1.05
_RUN_LIMIT_S = 120.0


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--pairs", type=at_least(1), default=PAIR_COUNT, help="of one and of two ranks"
    )


def measure(given: argparse.Namespace) -> list[Figure]:
    """Measure one rank and two with one farm of two agents."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        raise FarmError("overhead: expected at least two cores, got one")
    pair_count = 1 if given.quick else given.pairs
    figures: list[Figure] = []
    with running_farm(agents=len(cores), settings={}) as farm:
        for world_size in (1, 2):
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
        for is_ours in (is_ours_first, not is_ours_first):
            if is_ours:
                ours_s.append(through_farm_s(farm, world_size=len(cores)))
            else:
                with frozen():
                    by_hand_s.append(started_by_hand_s(cores))
                farm.await_beats()
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


def through_farm_s(farm: BenchmarkFarm, *, world_size: int) -> float:
    """Run a job; return the median of rank 0's timed steps."""
    sweep_id = farm.submit(
        model=MODEL,
        dataset=DATASET,
        strategy="single" if world_size == 1 else "mwms_ring",
        world_size=world_size,
        global_batch_size=BATCH_SIZE * world_size,
        steps=TIMED_STEPS,
        warmup_steps=WARMUP_STEPS,
    )
    [job] = farm.finish(sweep_id, within_s=_RUN_LIMIT_S)
    farm.wait_until_idle()
    with reading(farm.engine) as session:
        [token] = session.scalars(sa.select(Attempt.id).where(Attempt.job_id == job.id))
        chunks = steps_of(session, token, rank=0)
    times_s = [t for chunk in chunks if chunk.kind is StepKind.TIMED for t in chunk.times_s]
    return _median_of_all(times_s)


def started_by_hand_s(cores: Sequence[int]) -> float:
    """Start one process for each core; return the median of rank 0's timed steps."""
    ports = [str(free_port()) for _ in cores]
    ranks = [
        subprocess.Popen(
            [sys.executable, "-P", "-m", "benchmarks.by_hand", str(rank), str(core), *ports],
            cwd=root(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        for rank, core in enumerate(cores)
    ]
    try:
        deadline = time.monotonic() + _RUN_LIMIT_S
        outputs = [rank.communicate(timeout=deadline - time.monotonic())[0] for rank in ranks]
    except subprocess.TimeoutExpired:
        raise FarmError(f"by hand: the ranks were not done within {_RUN_LIMIT_S:g} s") from None
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    if any(rank.returncode != 0 for rank in ranks):
        raise FarmError(f"by hand: the ranks ended with {[rank.returncode for rank in ranks]}")
    times_s: list[float] = json.loads(outputs[0])["step_times_s"]
    return _median_of_all(times_s)


def _median_of_all(times_s: Sequence[float]) -> float:
    if len(times_s) != TIMED_STEPS:
        raise FarmError(f"{len(times_s)} timed steps, expected {TIMED_STEPS}")
    return statistics.median(times_s)


if __name__ == "__main__":
    sys.exit(run_benchmark(__doc__, measure, options=add_options))
