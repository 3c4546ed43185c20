"""Compares warm with cold trainers: time to the first step, and step time.

Both kinds are started as an agent starts them, one right after the other, in turn first and second
(ABBA), with several templates one after the other: one rank alone, and a ring of two where there
are two cores. Then each in turn gets its `go`, without the rendezvous, which is the same for both,
and does its first step while the other stands still (SIGSTOP). And so they take turns to their end,
so that whatever makes a machine slower for some seconds slows down both alike. A step that is
interrupted by a turn counts with its wait, which a median does not see.

Run it from the repository on a quiet machine: `python -m benchmarks.training.warm`, about eight
minutes.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.figures import BenchmarkFigure, run_benchmark, say
from benchmarks.pairs import PairedRatio, alternating, paired_ratio
from benchmarks.training.trainers import TrainerRun, Trainers, config_of, ready_templates
from farm.configuration.spec import JobSpec
from farm.errors import FarmError
from farm.text.display import duration
from worker_agent.config import AgentConfig
from worker_agent.trainer_process.child import become_reaper
from worker_agent.trainer_process.template import TemplateProcess

_START_LIMIT_RATIO = 0.45
# Step times agree if their ratio cannot be told from 1 or is next to it, and is known so well that
# this says something: noise alone would make a wide interval, which holds 1 whatever is compared.
_STEP_LIMIT_RATIO = 0.02
_STEP_INTERVAL_RATIO = 0.05
# Shorter than a heartbeat's limit within a gang: it counts while its members stand still.
_TURN_S = 1.0
_ALONE = JobSpec(
    model="small_cnn",
    dataset="digits",
    strategy="single",
    world_size=1,
    global_batch_size=256,
    steps=300,
    warmup_step_count=30,
)
_RING = dataclasses.replace(
    _ALONE, strategy="mwms_ring", world_size=2, global_batch_size=512, steps=150
)


def compare_starts(
    job: JobSpec,
    configs: Sequence[AgentConfig],
    templates: Sequence[TemplateProcess],
    *,
    pair_count: int,
) -> tuple[list[TrainerRun], list[TrainerRun]]:
    """Return the warm runs and the cold ones, pair by pair."""
    warm: list[TrainerRun] = []
    cold: list[TrainerRun] = []
    for number, is_warm_first in enumerate(alternating(pair_count), start=1):
        runs = take_turns(job, configs, templates, is_warm_first=is_warm_first)
        warm.append(runs[True])
        cold.append(runs[False])
        say(
            f"{job.strategy} {number}/{pair_count}: warm and cold, first step after "
            f"{warm[-1].first_step_s:.2f} and {cold[-1].first_step_s:.2f} s, a step "
            f"{duration(warm[-1].step_s)} and {duration(cold[-1].step_s)}"
        )
    return warm, cold


def take_turns(
    job: JobSpec,
    configs: Sequence[AgentConfig],
    templates: Sequence[TemplateProcess],
    *,
    is_warm_first: bool,
) -> dict[bool, TrainerRun]:
    """Return whether warm to the run, of one pair."""
    order = (is_warm_first, not is_warm_first)
    with ExitStack() as stack:
        both: dict[bool, Trainers] = {}
        for is_warm in order:
            used = list(templates) if is_warm else [None] * len(templates)
            both[is_warm] = Trainers(job, configs, used)
            stack.callback(both[is_warm].close)
        for trainers in both.values():
            trainers.go()
        while not any(trainers.is_done for trainers in both.values()):
            for trainers in both.values():
                trainers.train_for(_TURN_S)
        return {is_warm: trainers.finish() for is_warm, trainers in both.items()}


def figures_of(
    name: str, warm: Sequence[TrainerRun], cold: Sequence[TrainerRun]
) -> list[BenchmarkFigure]:
    """Return what the limits are held against."""
    start = pairs_of(lambda run: run.first_step_s, warm, cold)
    go = pairs_of(lambda run: run.go_to_first_step_s, warm, cold)
    step = pairs_of(lambda run: run.step_s, warm, cold)
    # From go on, against all of a cold start: what the limit was first written for.
    whole = paired_ratio([r.go_to_first_step_s for r in warm], [r.first_step_s for r in cold])
    return [
        figure(
            f"{name}: start to first step",
            lambda run: run.first_step_s,
            (warm, cold),
            ratio=start,
            limit=f"at most {_START_LIMIT_RATIO:.2f}",
            reached=start.median <= _START_LIMIT_RATIO,
        ),
        figure(
            f"{name}: go to first step",
            lambda run: run.go_to_first_step_s,
            (warm, cold),
            ratio=go,
            note=f"{whole.median:.2f} of a cold start from its beginning; of it, "
            f"connecting and building {median(warm, lambda run: run.connect_s):.3f} s warm, "
            f"{median(cold, lambda run: run.connect_s):.3f} s cold, "
            f"tracing and running {median(warm, lambda run: run.traced_s):.3f} s warm, "
            f"{median(cold, lambda run: run.traced_s):.3f} s cold",
        ),
        figure(
            f"{name}: step time",
            lambda run: run.step_s,
            (warm, cold),
            ratio=step,
            limit=f"within {_STEP_LIMIT_RATIO:.0%} of 1 or not told from it, "
            f"interval within {_STEP_INTERVAL_RATIO:.0%}",
            reached=agrees(step),
        ),
    ]


def agrees(ratio: PairedRatio) -> bool:
    """Whether a ratio of step times is known, and is 1 as far as that can be told."""
    farthest = max(abs(ratio.low - 1), abs(ratio.high - 1))
    is_one = ratio.low <= 1 <= ratio.high or farthest <= _STEP_LIMIT_RATIO
    return is_one and farthest <= _STEP_INTERVAL_RATIO


def figure(
    name: str,
    value: Callable[[TrainerRun], float],
    runs: tuple[Sequence[TrainerRun], Sequence[TrainerRun]],
    *,
    ratio: PairedRatio,
    limit: str = "",
    reached: bool | None = None,
    note: str = "",
) -> BenchmarkFigure:
    """Return a figure in seconds, warm against cold, with the interval of their ratio."""
    warm, cold = runs
    interval = (
        f"ratio {ratio.median:.4f}, 95 % interval {ratio.low:.4f} to {ratio.high:.4f}, "
        f"{ratio.pair_count} pairs"
    )
    return BenchmarkFigure(
        name=name,
        unit="s",
        ours=median(warm, value),
        baseline=median(cold, value),
        against="cold",
        ratio=ratio.median,
        limit=limit,
        reached=reached,
        note=f"{interval}; {note}" if note else interval,
    )


def pairs_of(
    value: Callable[[TrainerRun], float], warm: Sequence[TrainerRun], cold: Sequence[TrainerRun]
) -> PairedRatio:
    return paired_ratio([value(run) for run in warm], [value(run) for run in cold])


def median(runs: Sequence[TrainerRun], value: Callable[[TrainerRun], float]) -> float:
    return statistics.median(value(run) for run in runs)


def memory_of(template: TemplateProcess) -> BenchmarkFigure:
    """Return what the template costs while nothing is forked from it."""
    text = Path(f"/proc/{template.pid}/smaps_rollup").read_text()
    sizes = {words[0]: int(words[1]) * 1024 for words in map(str.split, text.splitlines()[1:])}
    return BenchmarkFigure(
        name="memory of the template",
        unit="bytes",
        ours=sizes["Pss:"],
        baseline=sizes["Rss:"],
        against="resident, with what it shares",
    )


def measure(given: argparse.Namespace) -> list[BenchmarkFigure]:
    """Compare one rank alone and, where there are two cores, a ring of two."""
    if not become_reaper():
        raise FarmError("warm trainers: this kernel gives a process no orphans")
    cores = sorted(os.sched_getaffinity(0))[-2:]
    with tempfile.TemporaryDirectory() as folder:
        configs = [config_of(core, Path(folder)) for core in cores]
        memory, warm, cold = compare_often(
            _ALONE, configs[-1:], lives=1 if given.quick else 4, pair_count=2 if given.quick else 4
        )
        figures = [memory, *figures_of("one rank", warm, cold)]
        if len(cores) == 2:
            _, warm, cold = compare_often(
                _RING, configs, lives=1 if given.quick else 5, pair_count=1 if given.quick else 4
            )
            figures += figures_of("ring of two", warm, cold)
    return figures


def compare_often(
    job: JobSpec, configs: Sequence[AgentConfig], *, lives: int, pair_count: int
) -> tuple[BenchmarkFigure, list[TrainerRun], list[TrainerRun]]:
    """Compare with several templates, one after the other; return the last one's memory, too.

    All forks of one template have its layout of memory in common, which alone may make a step some
    per cent faster or slower than another's.
    """
    warm: list[TrainerRun] = []
    cold: list[TrainerRun] = []
    for _ in range(lives):
        with ready_templates(configs) as templates:
            memory = memory_of(templates[0])
            more_warm, more_cold = compare_starts(job, configs, templates, pair_count=pair_count)
        warm += more_warm
        cold += more_cold
    return memory, warm, cold


if __name__ == "__main__":
    sys.exit(run_benchmark(__doc__, measure))
