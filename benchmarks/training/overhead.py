"""Step time of a training through the farm, against the same training started by hand.

By hand is `by_hand.py`: plain TensorFlow with TF_CONFIG, written without the farm's
trainers; model, optimizer, examples, batches, threads, warm-up and the number of steps are the
same. Through the farm it is a job like any other: agents with sampler, spool and heartbeats,
scheduler, collector, Redis and store are real and at work.

Both trainings of a pair are there at the same time and take turns of some seconds, ABBA over pairs:
while one trains, every process of the other stands still (SIGSTOP), the whole farm if it is the one
by hand, so that by hand means without a farm. So whatever makes a machine slower for some seconds
slows down both alike; one run after the other differed by 10 % on the machine of the table. A step
that is interrupted by a turn counts with its seconds of waiting, which a median does not see.

Every rank, either way, is bound to one core, and with it everything that belongs to its agent, as
on a VM of one core. The server's processes (scheduler, collector, web) would be on another machine.
Here they have turns of their own, in which they answer the agents while no rank trains, and stand
still while one does; Redis does not, since agents wait for it. `--server-beside` lets them run
during the farm's turns, on the cores of the ranks, as where one machine is server and agents.

A run's figure is the median time of rank 0's timed steps; a pair's is the ratio of the two. Two
processes that do the same differ by some per cent, as `--no-farm` shows, by the layout of their
memory, and all that is forked from one template has its layout in common. So every pair has a gang
by hand and a farm of its own, with templates of its own. Limits, with one rank and with two: the
median over the pairs at most 1.02, the upper bound of its 95 % bootstrap interval at most 1.05.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import sqlalchemy as sa

from benchmarks.figures import BenchmarkFigure, at_least, run_benchmark, say
from benchmarks.live import BenchmarkFarm, running_farm
from benchmarks.pairs import paired_ratio
from benchmarks.training.affinity import bind_agents, farm_processes, frozen
from benchmarks.training.by_hand import BATCH_SIZE, DATASET, MODEL, TIMED_STEPS, WARMUP_STEPS
from benchmarks.training.gang_by_hand import RUN_LIMIT_S, GangByHand, median_step_s
from benchmarks.training.trainers import Trainers, config_of, ready_templates
from farm.embedded.signals import StopSignals
from farm.errors import FarmError
from farm.gang.lifecycle import AttemptState
from farm.messages.trainer_lines import StepKind
from farm.store.agents.agents import set_drained
from farm.store.engine import reading, writing
from farm.store.series.series import steps_of
from farm.store.tables import AttemptRow, JobRow
from farm.submission import plan
from farm.text.display import duration
from worker_agent.trainer_process.child import become_reaper

PAIR_COUNT = 20
WORLD_SIZES = (1, 2)
MEDIAN_LIMIT, UPPER_LIMIT = 1.02, 1.05
# Whatever the farm does once a second is due at the begin of a turn, and so is done once too often
# in each: the longer a turn, the less that counts. But a rank of the farm that is not heard of for
# 5 s is lost, and beats every 2.5 s.
_TURN_S = 1.5
_SERVER_TURN_S = 0.5  # for what it does in three seconds, of which it takes some 15 ms a second


@dataclass(slots=True)
class Pairs:
    """The median step times of one width, pair by pair."""

    world_size: int
    wanted_count: int
    ours_s: list[float] = field(default_factory=list)
    by_hand_s: list[float] = field(default_factory=list)

    @property
    def ranks(self) -> str:
        return "1 rank" if self.world_size == 1 else f"{self.world_size} ranks"

    def add(self, ours_s: float, by_hand_s: float) -> None:
        self.ours_s.append(ours_s)
        self.by_hand_s.append(by_hand_s)
        say(
            f"{self.ranks}, pair {len(self.ours_s)}/{self.wanted_count}: {duration(ours_s)}, "
            f"by hand {duration(by_hand_s)}, ratio {ours_s / by_hand_s:.4f}"
        )


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument(
        "--pairs", type=at_least(1), default=PAIR_COUNT, help="of one and of two ranks"
    )
    parser.add_argument("--ranks", type=int, choices=WORLD_SIZES, help="of one of the two only")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument(
        "--no-farm",
        action="store_true",
        help="by hand against by hand, held to no limit: by how much two of the same differ",
    )
    instead.add_argument(
        "--trainers",
        action="store_true",
        help="the farm's warm trainers without a farm against by hand, held to no limit",
    )
    instead.add_argument(
        "--server-beside",
        action="store_true",
        help="the server runs on the ranks' cores while they train, held to no limit",
    )


def measure(given: argparse.Namespace) -> list[BenchmarkFigure]:
    """Measure one rank and two, a pair of either with every farm of two agents."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        raise FarmError("overhead: expected at least two cores, got one")
    world_sizes = WORLD_SIZES if given.ranks is None else (given.ranks,)
    pair_count = 1 if given.quick else given.pairs
    of_widths = [Pairs(world_size, pair_count) for world_size in world_sizes]
    for _ in range(pair_count):
        if given.no_farm:
            compare_by_hand(of_widths, cores)
        elif given.trainers:
            compare_trainers(of_widths, cores)
        else:
            compare_with_farm(of_widths, cores, is_server_beside=given.server_beside)
    is_held = not (given.no_farm or given.trainers or given.server_beside)
    return [one for pairs in of_widths for one in figures_of(pairs, is_held=is_held)]


def figures_of(pairs: Pairs, *, is_held: bool) -> list[BenchmarkFigure]:
    """Return the figure of the median and that of its upper bound."""
    ratio = paired_ratio(pairs.ours_s, pairs.by_hand_s)
    return [
        BenchmarkFigure(
            name=f"step time, {pairs.ranks}, {what}",
            unit="s",
            ours=statistics.median(pairs.ours_s),
            baseline=statistics.median(pairs.by_hand_s),
            against="started by hand",
            ratio=value,
            limit=f"ratio at most {limit:g}" if is_held else "",
            reached=value <= limit if is_held else None,
            note=f"{ratio.pair_count} pairs of {TIMED_STEPS} steps, 95 % interval "
            f"{ratio.low:.4f} to {ratio.high:.4f}",
        )
        for what, value, limit in (
            ("median of the pairs", ratio.median, MEDIAN_LIMIT),
            ("upper bound (95 %)", ratio.high, UPPER_LIMIT),
        )
    ]


def compare_by_hand(of_widths: Sequence[Pairs], cores: Sequence[int]) -> None:
    """Add a pair of two trainings by hand to each width."""
    with StopSignals() as signals:
        for pairs in of_widths:
            with (
                closing(GangByHand(cores[: pairs.world_size])) as one,
                closing(GangByHand(cores[: pairs.world_size])) as other,
            ):
                for gang in (one, other):
                    gang.get_ready(signals)
                while not (one.is_done or other.is_done):
                    one.train_for(_TURN_S, signals)
                    other.train_for(_TURN_S, signals)
                pairs.add(one.finish(), other.finish())


def compare_trainers(of_widths: Sequence[Pairs], cores: Sequence[int]) -> None:
    """Add a pair of the farm's trainers, forked from new templates, and by hand to each width."""
    if not become_reaper():
        raise FarmError("overhead: this machine's kernel lets nobody fork trainers")
    with StopSignals() as signals, TemporaryDirectory() as folder:
        configs = [config_of(core, Path(folder)) for core in cores]
        for pairs in of_widths:
            own_cores = cores[: pairs.world_size]
            spec = plan({"name": "overhead", "case": [_case(pairs.world_size)]}).expansion.jobs[0]
            with (
                ready_templates(configs[: pairs.world_size]) as templates,
                closing(GangByHand(own_cores)) as by_hand,
            ):
                by_hand.get_ready(signals)
                with closing(Trainers(spec, configs, templates)) as trainers:
                    trainers.go()
                    while not (by_hand.is_done or trainers.is_done):
                        by_hand.train_for(_TURN_S, signals)
                        trainers.train_for(_TURN_S)
                    by_hand_s = by_hand.finish()
                    pairs.add(trainers.finish().step_s, by_hand_s)


def compare_with_farm(
    of_widths: Sequence[Pairs], cores: Sequence[int], *, is_server_beside: bool
) -> None:
    """Add a pair through one new farm, and by hand, to each width."""
    with running_farm(agents=len(cores), settings={}) as farm:
        bind_agents()
        for pairs in of_widths:
            with writing(farm.engine) as session:
                # A gang of one shall get the agent of the core that is compared.
                is_alone = pairs.world_size == 1
                set_drained(session, farm.embedded.agent_ids[1], is_drained=is_alone)
            own_cores = cores[: pairs.world_size]
            pairs.add(*run_pair(farm, own_cores, is_server_beside=is_server_beside))


def run_pair(
    farm: BenchmarkFarm, cores: Sequence[int], *, is_server_beside: bool
) -> tuple[float, float]:
    """Train both ways in turns; return the farm's median step time and that by hand."""
    with closing(GangByHand(cores)) as by_hand:
        with frozen(farm_processes(all_but=by_hand.pids).all):
            by_hand.get_ready(farm.signals)
        farm.await_beats()
        idle = farm_processes(all_but=by_hand.pids)
        sweep_id, token = _start_job(farm, world_size=len(cores))
        # Looked for once: it takes some milliseconds of a core, and one of the two is training.
        processes = farm_processes(all_but=by_hand.pids)
        trainers = processes.trainers_since(idle)
        is_over = False
        while not is_over:
            with frozen(processes.all):
                by_hand.train_for(_TURN_S, farm.signals)
                is_over = by_hand.is_done or farm.is_over(sweep_id)
            with frozen(() if is_server_beside else processes.server):
                farm.signals.pause(_TURN_S)
            if not is_server_beside:
                with frozen(trainers):
                    farm.signals.pause(_SERVER_TURN_S)
        with frozen(processes.all):
            by_hand_s = by_hand.finish()
    farm.finish(sweep_id, within_s=RUN_LIMIT_S)
    farm.wait_until_idle()
    return through_farm_s(farm, token), by_hand_s


def _start_job(farm: BenchmarkFarm, *, world_size: int) -> tuple[int, int]:
    """Submit the job and wait until its ranks train; return its sweep and its attempt's token."""
    sweep_id = farm.submit(**_case(world_size))

    def started_token() -> int | None:
        with reading(farm.engine) as session:
            return session.scalar(
                sa.select(AttemptRow.id)
                .join(JobRow, JobRow.id == AttemptRow.job_id)
                .where(JobRow.sweep_id == sweep_id, AttemptRow.started_at.is_not(None))
            )

    return sweep_id, farm.wait_for(started_token, "a job that trains", within_s=RUN_LIMIT_S)


def _case(world_size: int) -> dict[str, Any]:
    return {
        "model": MODEL,
        "dataset": DATASET,
        "strategy": "single" if world_size == 1 else "mwms_ring",
        "world_size": world_size,
        "global_batch_size": BATCH_SIZE * world_size,
        "steps": TIMED_STEPS,
        "warmup_steps": WARMUP_STEPS,
    }


def through_farm_s(farm: BenchmarkFarm, token: int) -> float:
    """Return the median of rank 0's timed steps.

    Raises:
        FarmError: the farm voided the attempt, and tried again without turns.
    """
    with reading(farm.engine) as session:
        attempt = session.get_one(AttemptRow, token)
        if attempt.state is not AttemptState.SUCCEEDED:
            raise FarmError(f"attempt {token} {attempt.state.value}: {attempt.reason}")
        chunks = steps_of(session, token, rank=0)
    return median_step_s(
        [t for chunk in chunks if chunk.kind is StepKind.TIMED for t in chunk.times_s]
    )


if __name__ == "__main__":
    sys.exit(run_benchmark(__doc__, measure, options=add_options))
