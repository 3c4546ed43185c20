"""Estimates how long jobs, sweeps and the whole queue will still take. Pure.

The scheduler orders jobs by their expected durations. A wrong estimate does no harm, so a rough one
is better than none. The estimate is the duration of earlier jobs of the cell; else the prediction
for the cell; else it comes from the step time of other cells of the model, then of any model; else
it is a guess.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from farm.configuration.spec import JobSpec

# Where nothing was ever measured: a small model on a CPU, started warm.
_STEP_S = 0.05
_START_S = 5.0
_STEPS_AN_EPOCH = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPace:
    """How long `job_count` jobs of one width kept their agents on average, from lease to end."""

    agent_count: int
    job_count: int
    mean_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfinishedJob:
    """One job, or `job_count` that are alike. `elapsed_s`: since the lease; 0 while it waits."""

    agent_count: int
    elapsed_s: float = 0.0
    job_count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepLoad:
    """The remaining work of a sweep, and the durations of its jobs so far."""

    paces: tuple[JobPace, ...]
    active: tuple[UnfinishedJob, ...]
    waiting: tuple[UnfinishedJob, ...]
    is_held: bool = False

    @property
    def unfinished(self) -> tuple[UnfinishedJob, ...]:
        """All its unfinished jobs, including held ones."""
        return self.active + self.waiting

    @property
    def held_count(self) -> int:
        """How many jobs wait that nobody starts: their sweep is paused or over its budget."""
        return _job_count(self.waiting) if self.is_held else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueEstimate:
    """`remaining_s` None: nothing to go by. The counts: of jobs that are not in it, and why."""

    remaining_s: float | None
    held_count: int = 0  # their sweeps are paused or over their budgets
    too_wide_count: int = 0  # the farm has fewer agents than they have ranks
    unknown_count: int = 0  # no job has ever finished that would tell


def remaining_s(
    paces: Collection[JobPace], unfinished: Collection[UnfinishedJob], *, agent_count: int
) -> float | None:
    """Estimate the time until the last job ends, were the farm's agents all for this sweep.

    A job of w ranks is expected to take what finished jobs of w ranks took on average, or, as long
    as there are none, what all finished jobs took; A // w of them run at once on A agents. Widths
    are taken one after another, so a farm that fills its gaps with narrow jobs is done sooner.
    None as long as no job has finished, or where a job is wider than the farm.
    """
    if not unfinished:
        return 0.0
    if not paces or any(job.agent_count > agent_count for job in unfinished):
        return None
    return max(_spent_s(paces, unfinished, agent_count=agent_count))


def estimate_queue(
    loads: Iterable[SweepLoad], elsewhere: Collection[JobPace], *, agent_count: int
) -> QueueEstimate:
    """Estimate when all that is started or waits will be over, one sweep after another.

    As for one sweep, by the paces of each; `elsewhere`: those of other sweeps, for those of which
    nothing has finished yet. Labels and capabilities do not count: it is a lower bound where few
    agents can serve what waits.
    """
    total_s = longest_s = 0.0
    held_count = too_wide_count = unknown_count = known_count = 0
    for load in loads:
        held_count += load.held_count
        jobs = load.active if load.is_held else load.unfinished
        fitting = [job for job in jobs if job.agent_count <= agent_count]
        too_wide_count += _job_count(jobs) - _job_count(fitting)
        paces = load.paces or elsewhere
        if not paces:
            unknown_count += _job_count(fitting)
            continue
        known_count += _job_count(fitting)
        of_all_s, of_longest_s = _spent_s(paces, fitting, agent_count=agent_count)
        total_s, longest_s = total_s + of_all_s, max(longest_s, of_longest_s)
    is_empty = not known_count + too_wide_count + unknown_count
    return QueueEstimate(
        remaining_s=max(total_s, longest_s) if known_count or is_empty else None,
        held_count=held_count,
        too_wide_count=too_wide_count,
        unknown_count=unknown_count,
    )


def _spent_s(
    paces: Collection[JobPace], unfinished: Collection[UnfinishedJob], *, agent_count: int
) -> tuple[float, float]:
    """Return what all of them take with every agent at them, and what the longest one takes."""
    expected_s = {pace.agent_count: pace.mean_s for pace in paces}
    overall_s = sum(p.mean_s * p.job_count for p in paces) / sum(p.job_count for p in paces)
    total_s = longest_s = 0.0
    for job in unfinished:
        left_s = max(expected_s.get(job.agent_count, overall_s) - job.elapsed_s, 0.0)
        total_s += left_s * job.job_count / (agent_count // job.agent_count)
        longest_s = max(longest_s, left_s)
    return total_s, longest_s


def _job_count(jobs: Iterable[UnfinishedJob]) -> int:
    return sum(job.job_count for job in jobs)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLength:
    """For how long a gang that succeeded was leased."""

    cell_hash: str
    spec: JobSpec
    length_s: float


def expected_lengths_s(
    cells: Mapping[str, JobSpec],
    *,
    measured: Collection[MeasuredLength],
    predicted_s: Mapping[str, float],
) -> dict[str, float]:
    """Return by cell hash how long a job of each cell is expected to take."""
    by_cell: dict[str, list[float]] = {}
    by_model: dict[str, list[float]] = {}
    for one in measured:
        by_cell.setdefault(one.cell_hash, []).append(one.length_s)
        step_s = max(0.0, one.length_s - _START_S) / _steps(one.spec)
        by_model.setdefault(one.spec.model, []).append(step_s)
    model_step_s = {model: statistics.median(steps_s) for model, steps_s in by_model.items()}
    any_step_s = statistics.median(model_step_s.values()) if model_step_s else _STEP_S
    found = {}
    for cell_hash, spec in cells.items():
        if cell_hash in by_cell:
            found[cell_hash] = statistics.fmean(by_cell[cell_hash])
        elif cell_hash in predicted_s:
            found[cell_hash] = predicted_s[cell_hash]
        else:
            step_s = model_step_s.get(spec.model, any_step_s)
            found[cell_hash] = _START_S + _steps(spec) * step_s
    return found


def _steps(spec: JobSpec) -> int:
    timed = spec.steps if spec.steps is not None else (spec.epochs or 1) * _STEPS_AN_EPOCH
    return max(1, spec.warmup_step_count + timed)
