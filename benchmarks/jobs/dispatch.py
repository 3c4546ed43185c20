"""Times a job from its submission to its trainer's start, and from its end to the next job.

**Dispatch.** On an idle farm a sweep of one job is submitted, again and again: from just before its
transaction begins to the moment at which the trainer's process has been started, which its first
line notes. In between lie the scheduler's waking up, placement, the lease, Celery, the agent, and a
fork with exec. The baseline, in the same run and on the same Redis, is a bare Celery worker on a
queue of its own: from just before `apply_async` to the first line of the task.

**Hand-over.** A queue of jobs for a gang of two: from the end of an attempt's last step, by its
trainers' own clock, to the lease of the next attempt that takes the gang. Once with TensorFlow's
trainers, which part from each other and end first, and once, as the baseline, with the trainer that
the tests use, which trains nothing and ends at once: what is left then is the farm's own.

For the dispatch the trainer is that one, too. Agents, scheduler, collector, Redis and the SQLite
store are real.

Limits: dispatch 150 ms at the median, hand-over 2 s at the most, the longest of all.
"""

from __future__ import annotations

import argparse
import shlex
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from benchmarks.figures import BenchmarkFigure, run_benchmark, say
from benchmarks.jobs.celery_baseline import bare_worker, note_times_s
from benchmarks.live import FAKE_TRAINER, BenchmarkFarm, running_farm
from farm.messages.reports import RankEnded
from farm.store.engine import reading
from farm.store.series.series import steps_by_rank
from farm.store.tables import AttemptRow, JobRow, RankRow
from farm.text.display import duration, exact_milliseconds
from farm.values.codec import from_json

DISPATCH_LIMIT_S = 0.15
HAND_OVER_LIMIT_S = 2.0
DISPATCH_COUNT, HAND_OVER_COUNT, TENSORFLOW_COUNT = 50, 20, 6
QUICK_COUNT = 3
_CASE: dict[str, Any] = {
    "model": "mlp",
    "dataset": "digits",
    "global_batch_size": 32,
    "steps": 5,
    "warmup_steps": 1,
}
_STEP_S = 0.01


def measure(given: argparse.Namespace) -> list[BenchmarkFigure]:
    """Run one farm with the tests' trainer, and for the hand-over another with TensorFlow's."""
    with TemporaryDirectory(prefix="farm-dispatch-") as name:
        folder = Path(name)
        starts = folder / "starts"
        starts.touch()
        settings = {
            "AGENT_TRAINER": shlex.quote(str(noting_trainer(folder, starts))),
            "FAKE_TRAINER": f"steps_s:{_STEP_S}",
        }
        with running_farm(agents=2, settings=settings) as farm:
            count = QUICK_COUNT if given.quick else DISPATCH_COUNT
            say(f"{count} jobs on an idle farm")
            dispatched_s = dispatch_times_s(farm, starts, count=count)
            broker_url, noted = farm.embedded.settings.broker_url, folder / "noted"
            with bare_worker(broker_url, noted, pool="solo"):
                # The first one pays for the worker's start.
                noted_s = note_times_s(broker_url, noted, count=count + 1, pause=farm.signals.pause)
                bare_s = noted_s[1:]
            count = QUICK_COUNT if given.quick else HAND_OVER_COUNT
            say(f"{count} jobs in a queue")
            fake_s = hand_over_times_s(farm, count=count)
    figures = [_dispatch(dispatched_s, bare_s)]
    if not given.quick:
        with running_farm(agents=2, settings={}) as farm:
            say(f"{TENSORFLOW_COUNT} jobs in a queue, with TensorFlow")
            figures.append(_hand_over(hand_over_times_s(farm, count=TENSORFLOW_COUNT), fake_s))
    return figures


def _dispatch(ours_s: Sequence[float], bare_s: Sequence[float]) -> BenchmarkFigure:
    median_s = statistics.median(ours_s)
    return BenchmarkFigure(
        name="store write to trainer started, p50",
        unit="s",
        ours=median_s,
        baseline=statistics.median(bare_s),
        against="bare Celery, send to start",
        limit=f"at most {exact_milliseconds(DISPATCH_LIMIT_S)} ms",
        reached=median_s <= DISPATCH_LIMIT_S,
        note=f"{len(ours_s)} jobs; longest {duration(max(ours_s))}, Celery's "
        f"{duration(max(bare_s))}",
    )


def _hand_over(ours_s: Sequence[float], fake_s: Sequence[float]) -> BenchmarkFigure:
    longest_s = max(ours_s)
    return BenchmarkFigure(
        name="last step to a free gang, longest",
        unit="s",
        ours=longest_s,
        baseline=max(fake_s),
        against="trainers that end at once",
        limit=f"at most {HAND_OVER_LIMIT_S:g} s",
        reached=longest_s <= HAND_OVER_LIMIT_S,
        note=f"{len(ours_s)} hand-overs, median {duration(statistics.median(ours_s))}",
    )


def noting_trainer(folder: Path, starts: Path) -> Path:
    """Write a program that notes when it was started and becomes the tests' trainer."""
    program = folder / "trainer"
    program.write_text(
        f"#!/bin/sh\ndate +%s%N >> {shlex.quote(str(starts))}\nexec {shlex.join(FAKE_TRAINER)}\n"
    )
    program.chmod(0o755)
    return program


def dispatch_times_s(farm: BenchmarkFarm, starts: Path, *, count: int) -> list[float]:
    """Submit jobs one at a time; return the seconds until each one's trainer ran."""
    times_s = []
    for number in range(count + 1):
        farm.wait_until_idle()
        time.sleep(0.1 + 0.037 * (number % 10))  # not in step with what the farm does by itself
        before = len(starts.read_text().split())
        begun = time.time()
        sweep_id = farm.submit(**_CASE, strategy="single", world_size=1)
        farm.finish(sweep_id, within_s=60)
        times_s.append(int(starts.read_text().split()[before]) / 1e9 - begun)
    return times_s[1:]  # the first one pays for connections and imports


def hand_over_times_s(farm: BenchmarkFarm, *, count: int) -> list[float]:
    """Submit a queue of jobs for the whole farm; return the seconds between each and the next."""
    sweep_id = farm.submit(**_CASE, strategy="mwms_ring", world_size=2, repetitions=count + 1)
    farm.finish(sweep_id, within_s=60 + 5 * count)
    attempts = (
        sa.select(AttemptRow.id, AttemptRow.leased_at)
        .join(JobRow, JobRow.id == AttemptRow.job_id)
        .where(JobRow.sweep_id == sweep_id)
        .order_by(AttemptRow.leased_at)
    )
    with reading(farm.engine) as session:
        rows = session.execute(attempts).all()
        ends = [last_step_at(session, row.id) for row in rows]
    leases = [row.leased_at.timestamp() for row in rows]
    return [lease - end for end, lease in zip(ends, leases[1:], strict=False)]


def last_step_at(session: Session, token: int) -> float:
    """Return when the attempt's last step ended, as seconds since 1970."""
    ends = []
    for rank, chunks in steps_by_rank(session, token).items():
        ended = from_json(RankEnded, session.get_one(RankRow, (token, rank)).ended)
        assert ended.result is not None, "every job has succeeded"
        assert ended.timed_begun_s is not None
        go_s = ended.result.timed_begun_monotonic_s - ended.timed_begun_s
        ends.append(go_s + max(chunk.begun_s + sum(chunk.times_s) for chunk in chunks))
    # All trainers run on this machine, so its monotonic clock is theirs.
    return time.time() - time.monotonic() + max(ends)


if __name__ == "__main__":
    sys.exit(run_benchmark(__doc__, measure))
