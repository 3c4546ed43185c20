"""Compares the farm with Celery, Dask and a shell loop on the same sweep of short jobs.

40 jobs of two ranks on two slots, so that one gang is at work at a time, by four contenders that
take turns in eight rounds, each beginning with another one: the farm (embedded: agents, scheduler,
collector, Redis and the SQLite store are real), raw Celery (`group`, one task a rank), Dask's
`distributed` (one task a rank), and a loop of the shell, as in a batch script of Slurm's. All stay
up meanwhile; what they do at first is not counted (one job each). The work is the same: the same
trainer's process for each rank, bound to the same cores, that meets its peer before the first step.

A job's *overhead* is what of the makespan is not its steps; the *idle share* is that share of the
slots' time; the *processor time* is that of all processes, which a busy machine changes least.
Ratios of makespans are medians over the rounds. Twice:

- With TensorFlow's trainers, which train a small network (`--trainer tensorflow`). That is what
  such sweeps are made of. Limit: ahead of each.
- With the trainer that the tests use, whose steps are of fixed length and which imports no
  framework (`--trainer fake`): what is left is what each adds itself. The farm's includes what the
  others do not do: a control run of the machine of 0.25 s, the round-trip time between the ranks
  before and after, samples once a second, and reports that are confirmed after they are stored.
"""

from __future__ import annotations

import argparse
import itertools
import shlex
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import sqlalchemy as sa

from benchmarks.figures import BenchmarkFigure, at_least, run_benchmark, say
from benchmarks.jobs.makespans import (
    Played,
    each_round,
    idle_ratio,
    job_count_of,
    makespan_s,
    overhead_s_a_job,
    processor_s_a_job,
    ratio,
    steps_s_a_job,
)
from benchmarks.jobs.rank_by_hand import LIMIT_S, WORLD_SIZE, Work
from benchmarks.jobs.rivals import Contender, celery_groups, dask_tasks
from benchmarks.jobs.shell_loop import ShellLoop
from benchmarks.live import FAKE_TRAINER, BenchmarkFarm, running_farm
from benchmarks.processor_time import tree_processor_s
from farm.errors import FarmError
from farm.gang.lifecycle import AttemptState
from farm.store.engine import reading
from farm.store.series.series import steps_by_rank
from farm.store.tables import AgentRow, AttemptRow, JobEvent, JobRow

JOB_COUNT, ROUND_COUNT = 40, 8
QUICK_JOB_COUNT, QUICK_ROUND_COUNT = 2, 1
FARM, DASK = "the farm", "Dask"
INSTALL_DASK = "pip install -e '.[compare]'"
_SHOWN_S = 0.005
_MEASURING = f"attempt: {AttemptState.MEASURING.value}"
_LOOK_EVERY_S = 0.1  # a look takes milliseconds from the cores that the ranks have
_STEP_S, _STEPS, _WARMUP_STEPS = 0.02, 45, 5  # a second in all
_CASE: dict[str, Any] = {
    "model": "mlp",
    "dataset": "digits",
    "strategy": "mwms_ring",
    "world_size": WORLD_SIZE,
    "global_batch_size": 64,
    "warmup_steps": _WARMUP_STEPS,
}
WORKS = {
    "fake": Work(
        name="no framework",
        trainer=FAKE_TRAINER,
        environment={"FAKE_TRAINER": f"steps_s:{_STEP_S},meet"},
        case={**_CASE, "steps": _STEPS},
    ),
    "tensorflow": Work(
        name="TensorFlow",
        trainer=(sys.executable, "-P", "-m", "farm.trainers"),
        environment={},
        case={**_CASE, "steps": 100},
    ),
}


class Farm:
    """Ours, as a contender: a sweep of as many repetitions for each round."""

    def __init__(self, farm: BenchmarkFarm) -> None:
        self._farm = farm
        self._sweep_ids: list[int] = []

    def play(self, work: Work, *, first_seed: int, job_count: int) -> Played:
        begun_s = time.monotonic()
        sweep_id = self._farm.submit(**work.case, repetitions=job_count, seed=first_seed)
        self._sweep_ids.append(sweep_id)
        jobs = self._farm.finish(sweep_id, within_s=LIMIT_S * job_count, every_s=_LOOK_EVERY_S)
        return Played(time.monotonic() - begun_s, tuple(map(self._steps_s, jobs)))

    def _steps_s(self, job: JobRow) -> float:
        succeeded = sa.select(AttemptRow.id).where(
            AttemptRow.job_id == job.id, AttemptRow.state == AttemptState.SUCCEEDED
        )
        with reading(self._farm.engine) as session:
            series = steps_by_rank(session, session.scalars(succeeded).one())
        return max(sum(sum(chunk.times_s) for chunk in chunks) for chunks in series.values())

    def phases_s(self) -> dict[str, list[float]]:
        """Return where the time between a lease and the next one goes, by the event it begins with.

        As the store was told of each counted job.
        """
        query = (
            sa.select(JobRow.sweep_id, JobEvent.at, JobEvent.event)
            .join(JobRow, JobRow.id == JobEvent.job_id)
            .where(JobRow.sweep_id.in_(self._sweep_ids[1:]), JobEvent.attempt_id.is_not(None))
            .order_by(JobEvent.at, JobEvent.id)
        )
        spans_s: dict[str, list[float]] = {}
        with reading(self._farm.engine) as session:
            events = session.execute(query).all()
        for (sweep_id, begun, name), (next_sweep_id, ended, _) in itertools.pairwise(events):
            if next_sweep_id == sweep_id:  # or another contender's turn lies between
                spans_s.setdefault(name, []).append((ended - begun).total_seconds())
        return spans_s


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--trainer", choices=sorted(WORKS), nargs="+", help="default: both")
    parser.add_argument(
        "--jobs", type=at_least(1), help=f"instead of {JOB_COUNT}; a multiple of {ROUND_COUNT}"
    )


def measure(given: argparse.Namespace) -> list[BenchmarkFigure]:
    """Play the sweep with each kind of trainer."""
    figures = []
    names = given.trainer or (["fake"] if given.quick else list(WORKS))
    for name in names:
        figures += _figures(WORKS[name], given)
    return figures


def _figures(work: Work, given: argparse.Namespace) -> list[BenchmarkFigure]:
    settings = dict(work.environment)
    if work.trainer == FAKE_TRAINER:
        settings["AGENT_TRAINER"] = shlex.join(FAKE_TRAINER)
    job_count = given.jobs or (QUICK_JOB_COUNT if given.quick else JOB_COUNT)
    round_count = QUICK_ROUND_COUNT if given.quick else ROUND_COUNT
    each = each_round(job_count, round_count=round_count)  # before anything is started
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="farm-compare-")))
        farm = stack.enter_context(running_farm(agents=WORLD_SIZE, settings=settings))
        broker_url = farm.embedded.settings.broker_url
        pause = farm.signals.pause
        ours = Farm(farm)
        contenders: dict[str, Contender] = {
            FARM: ours,
            "raw Celery": stack.enter_context(celery_groups(broker_url, folder, pause=pause)),
            "shell loop": ShellLoop(folder, pause=pause),
        }
        if find_spec("distributed"):
            contenders[DASK] = stack.enter_context(dask_tasks(folder, pause=pause))
        else:
            say(f"Dask is not installed, and its row is missed: {INSTALL_DASK}")
        if work.trainer != FAKE_TRAINER:
            farm.wait_for(lambda: _are_warm(farm), "warm trainers", within_s=120)
        played = _play(contenders, work, round_count=round_count, each=each)
        phases_s = ours.phases_s()
    return compared(work, played, phases_s=phases_s)


def _are_warm(farm: BenchmarkFarm) -> bool:
    with reading(farm.engine) as session:
        return all(session.scalars(sa.select(AgentRow.template_bytes)))


def _play(
    contenders: dict[str, Contender], work: Work, *, round_count: int, each: int
) -> dict[str, list[Played]]:
    """Let them take turns; each round begins with another one."""
    names = list(contenders)
    for contender in contenders.values():
        contender.play(work, first_seed=1, job_count=1)
    played: dict[str, list[Played]] = {name: [] for name in names}
    for number in range(round_count):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            one = _play_round(contenders[name], name, work, number=number, each=each)
            played[name].append(one)
            say(f"{work.name}, round {number + 1}, {name}: {_summary([one])}")
    return played


def _play_round(contender: Contender, name: str, work: Work, *, number: int, each: int) -> Played:
    """Let one play a round; whoever loses a job to a busy machine plays once more, uncounted.

    The farm repeats such a job by itself, within its makespan.
    """
    for first_seed in (1000 * (number + 1), 1000 * (number + 1) + each):
        had_s = _processor_s()
        try:
            one = contender.play(work, first_seed=first_seed, job_count=each)
        except FarmError as error:
            say(f"{work.name}, round {number + 1}, {name} plays again: {error}")
            continue
        return replace(one, processor_s=_processor_s() - had_s)
    raise FarmError(f"{name} has lost jobs twice in round {number + 1}")


def _processor_s() -> float:
    """Return what this process, all below it and those that have ended have had of the cores.

    All contenders are among them, of which only one is at work at a time.
    """
    return tree_processor_s(psutil.Process())


def compared(
    work: Work, played: Mapping[str, Sequence[Played]], *, phases_s: Mapping[str, Sequence[float]]
) -> list[BenchmarkFigure]:
    """Return a row for each of the others; one that was not there is a limit missed."""
    is_limited = work.trainer != FAKE_TRAINER
    ours = played[FARM]
    beside = [name for name in played if name != FARM]
    figures = [
        BenchmarkFigure(
            name=f"{work.name}: makespan of {job_count_of(ours)} jobs, beside {name}",
            unit="s",
            ours=makespan_s(ours),
            baseline=makespan_s(played[name]),
            against=name,
            ratio=ratio(ours, played[name]),
            limit="less than that" if is_limited else "",
            reached=ratio(ours, played[name]) < 1 if is_limited else None,
            note=_beside(ours, name, played[name])
            + (_of_the_overhead(phases_s) if name == beside[0] else ""),
        )
        for name in beside
    ]
    if DASK not in played:
        figures.append(
            BenchmarkFigure(
                name=f"{work.name}: makespan of {job_count_of(ours)} jobs, beside {DASK}",
                unit="s",
                ours=makespan_s(ours),
                baseline=None,
                against=DASK,
                limit="Dask is there",
                reached=False,
                note=f"Dask is not installed: {INSTALL_DASK}",
            )
        )
    return figures


def _beside(ours: Sequence[Played], name: str, theirs: Sequence[Played]) -> str:
    return (
        f"overhead a job {overhead_s_a_job(ours):.2f} s, {name} {overhead_s_a_job(theirs):.2f} s"
        f" (ratio {overhead_s_a_job(ours) / overhead_s_a_job(theirs):.2f}); steps a job "
        f"{steps_s_a_job(ours):.2f} s, {name} {steps_s_a_job(theirs):.2f} s; processor time a job "
        f"{processor_s_a_job(ours):.2f} s, {name} {processor_s_a_job(theirs):.2f} s; "
        f"slots idle {idle_ratio(ours):.0%}, {name} {idle_ratio(theirs):.0%}"
    )


def _of_the_overhead(phases_s: Mapping[str, Sequence[float]]) -> str:
    medians_s = {name: statistics.median(each_s) for name, each_s in phases_s.items()}
    phases = ", ".join(f"'{n}' {s:.2f} s" for n, s in medians_s.items() if s >= _SHOWN_S)
    return (
        f"; of the farm's overhead {statistics.mean(phases_s[_MEASURING]):.2f} s a job to close "
        "its ports, to time the network and to test the machine, which the others do not; medians "
        f"from event to event: {phases}"
    )


def _summary(rounds: Sequence[Played]) -> str:
    """Say what a job took, so that a long run that is stopped has told something."""
    return (
        f"{makespan_s(rounds) / job_count_of(rounds):.2f} s a job, overhead "
        f"{overhead_s_a_job(rounds):.2f} s, processor time {processor_s_a_job(rounds):.2f} s"
    )


if __name__ == "__main__":
    sys.exit(run_benchmark(__doc__, measure, options=add_options))
