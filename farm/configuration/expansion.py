"""Expands a sweep into jobs: the cross product of its axes, without impossible configurations."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from farm.configuration.axes import AXES, JOB_AXES, PROFILE_AXES, job_fields, spec_values
from farm.configuration.axis import AxisKind, plain_value, sends
from farm.configuration.catalogue import Catalogue
from farm.configuration.own_data import find_dataset
from farm.configuration.spec import MAX_SEED, JobSpec, NetworkProfile, ServerPlacement, TrainingPass
from farm.configuration.sweep import CaseSpec, SweepSpec
from farm.configuration.sweep_cell import Cell, problem_of, problem_of_steps, shown
from farm.errors import InvalidSpec

MAX_JOBS = 100_000
MAX_TEXT_BYTES = 4096  # of one cell, since every job stores its own copy


@dataclass(frozen=True, slots=True, kw_only=True)
class Impossible:
    """A cell that was left out. `reason` is `field: expected ..., got ...`."""

    cell: str
    reason: str

    def __str__(self) -> str:
        return f"{self.cell}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expansion:
    """`jobs`: first repetition of every cell, then the second, so that an early stop has all.

    Each round has the cells in an order of its own (a randomised block design), or a machine that
    slowly gets warmer would make the cells at the end of every round slower. `max_job_count`: with
    all the repetitions that a sweep until precision may add.
    """

    jobs: tuple[JobSpec, ...]
    max_job_count: int
    impossible: tuple[Impossible, ...]
    duplicate_count: int  # jobs dropped since an equal one is there already


def expand(sweep: SweepSpec, catalogue: Catalogue, *, max_jobs: int = MAX_JOBS) -> Expansion:
    """Build every job of the sweep, in an order that depends on nothing but the sweep.

    Raises:
        InvalidSpec: the sweep has more than `max_jobs` cells, counted before any is built; a cell
            cannot run and the sweep does not say `skip_impossible`; or no cell can run.
    """
    cell_count = sum(
        math.prod(len(case.values[axis.field]) for axis in AXES) for case in sweep.cases
    )
    most_jobs = cell_count * _max_repetitions(sweep)
    if most_jobs > max_jobs:
        raise InvalidSpec("sweep", most_jobs, f"at most {max_jobs} jobs in one sweep")
    _check_seeds(sweep)
    _check_sizes(sweep)
    possible: list[Cell] = []
    impossible: dict[str, Impossible] = {}
    for cell in _cells(sweep, catalogue):
        case = sweep.cases[cell.case]
        problem = problem_of(cell, catalogue, repeat=sweep.repeat) or problem_of_steps(
            cell, catalogue, steps=case.steps, epochs=case.epochs
        )
        if problem is None:
            possible.append(cell)
            continue
        if not sweep.skip_impossible:
            raise InvalidSpec(f"case[{cell.case}].{problem.field}", problem.value, problem.expected)
        line = str(cell)
        impossible.setdefault(line, Impossible(cell=line, reason=str(problem)))
    if not possible:
        first = next(iter(impossible.values()))
        raise InvalidSpec("sweep", first.reason, f"a cell that can run; all {cell_count} cannot")
    jobs, duplicate_count = _jobs(sweep, catalogue, possible)
    return Expansion(
        jobs=jobs,
        max_job_count=_max_job_count(sweep, jobs),
        impossible=tuple(impossible.values()),
        duplicate_count=duplicate_count,
    )


def without_jobs(
    expansion: Expansion, sweep: SweepSpec, reasons: Mapping[int, InvalidSpec]
) -> Expansion:
    """Return it without the jobs that have a reason, by their places in `expansion.jobs`.

    Raises:
        InvalidSpec: the sweep does not say `skip_impossible`, or no job is left.
    """
    if not reasons:
        return expansion
    if not sweep.skip_impossible or len(reasons) == len(expansion.jobs):
        raise next(iter(reasons.values()))
    impossible = {
        shown(spec_values(expansion.jobs[place])): str(why) for place, why in reasons.items()
    }
    jobs = tuple(job for place, job in enumerate(expansion.jobs) if place not in reasons)
    return dataclasses.replace(
        expansion,
        jobs=jobs,
        max_job_count=_max_job_count(sweep, jobs),
        impossible=(
            *expansion.impossible,
            *(Impossible(cell=cell, reason=reason) for cell, reason in impossible.items()),
        ),
    )


def _max_repetitions(sweep: SweepSpec) -> int:
    return sweep.repetitions if sweep.precision is None else sweep.precision.max_repetitions


def _max_job_count(sweep: SweepSpec, jobs: tuple[JobSpec, ...]) -> int:
    if sweep.precision is None:
        return len(jobs)
    # Cells that differ in their seeds alone are one, and may have more jobs to begin with.
    counts = Counter(_cell_identity(job) for job in jobs)
    return sum(max(count, sweep.precision.max_repetitions) for count in counts.values())


def _check_seeds(sweep: SweepSpec) -> None:
    for i, case in enumerate(sweep.cases):
        highest = MAX_SEED - _max_repetitions(sweep) + 1
        if case.seed > highest:
            raise InvalidSpec(
                f"case[{i}].seed", case.seed, f"at most {highest}, since repetition r adds r to it"
            )


def _check_sizes(sweep: SweepSpec) -> None:
    """Check the cell of each case that has the longest texts."""
    for i, case in enumerate(sweep.cases):
        texts = [[v for v in values if isinstance(v, str)] for values in case.values.values()]
        size = sum(max((len(text.encode()) for text in of_axis), default=0) for of_axis in texts)
        size += sum(len(text.encode()) for pair in case.labels.items() for text in pair)
        if size > MAX_TEXT_BYTES:
            expected = f"texts of at most {MAX_TEXT_BYTES} bytes in one job"
            raise InvalidSpec(f"case[{i}]", f"{size} bytes", expected)


def _cells(sweep: SweepSpec, catalogue: Catalogue) -> Iterator[Cell]:
    for i, case in enumerate(sweep.cases):
        axes = [case.values[axis.field] for axis in JOB_AXES]
        for *point, network in itertools.product(*axes, _networks(case)):
            values = {axis.field: value for axis, value in zip(JOB_AXES, point, strict=True)}
            yield _cell(i, values, network, case.emulator, catalogue)


def _networks(case: CaseSpec) -> list[NetworkProfile | None]:
    axes = [case.values[axis.field] for axis in PROFILE_AXES]
    fields = [axis.field for axis in PROFILE_AXES]
    profiles = [
        NetworkProfile(**dict(zip(fields, point, strict=True)))
        for point in itertools.product(*axes)
    ]
    return [None if profile.is_untouched else profile for profile in profiles]


def _cell(
    case: int,
    values: dict[str, Any],
    network: NetworkProfile | None,
    emulator: str | None,
    catalogue: Catalogue,
) -> Cell:
    """Build a cell, without the axes that do not apply to its strategy or its pass.

    To an unknown strategy, which is refused later, no such axis applies.
    """
    facts, world_size = catalogue.strategy(values["strategy"]), values["world_size"]
    for axis in JOB_AXES:
        count = _agent_count(values) if axis.is_of_network else world_size
        value = values[axis.field]
        if facts is None:
            is_used = not axis.is_named and axis.kind is not AxisKind.LINK
        else:
            is_used = axis.has_effect(value, strategy=facts, world_size=count)
        if not is_used:
            values[axis.field] = axis.absent
        if axis.is_of_updates and values["training_pass"] is TrainingPass.FORWARD:
            values[axis.field] = axis.absent
    for axis in JOB_AXES:
        if axis.only_with is not None:
            other, needed = axis.only_with
            if plain_value(values[other]) != plain_value(needed):
                values[axis.field] = axis.absent
    if facts is not None and not sends(facts, _agent_count(values)):
        network = None
    return Cell(
        case=case, values=values, network=network, emulator=None if network is None else emulator
    )


def _agent_count(values: Mapping[str, Any]) -> int:
    """Return the agents of a gang: between the ranks and servers of one is no network."""
    is_apart = values["server_placement"] is ServerPlacement.APART
    training = values["world_size"] // values["ranks_per_agent"]
    return cast(int, training + (values["server_count"] if is_apart else 0))


def _jobs(
    sweep: SweepSpec, catalogue: Catalogue, cells: list[Cell]
) -> tuple[tuple[JobSpec, ...], int]:
    """Build the jobs of possible cells, without duplicates; return them and how many went."""
    jobs: dict[object, JobSpec] = {}
    for repetition in range(sweep.repetitions):
        for cell in random.Random(repetition).sample(cells, len(cells)):
            job = _job(sweep, catalogue, cell, repetition)
            # A tuple of the fields, since hashing 100,000 JSON texts would take seconds.
            jobs.setdefault((*_cell_identity(job), job.seed, job.repetition), job)
    return tuple(jobs.values()), len(cells) * sweep.repetitions - len(jobs)


def _job(sweep: SweepSpec, catalogue: Catalogue, cell: Cell, repetition: int) -> JobSpec:
    case = sweep.cases[cell.case]
    data = find_dataset(cell["dataset"], catalogue.datasets)
    return JobSpec(
        **job_fields(cell.values),
        network=cell.network,
        emulator=cell.emulator,
        steps=case.steps,
        epochs=case.epochs,
        warmup_step_count=case.warmup_step_count,
        seed=case.seed + repetition,
        repetition=repetition,
        # Kept only where it matters: it must not part equal cells of two sweeps.
        repeat=data is not None and cell["global_batch_size"] > data.train_examples_count,
        labels=case.labels,
        time_limit_s=case.time_limit_s,
    )


def _cell_identity(job: JobSpec) -> tuple[object, ...]:
    return (
        *(getattr(job, axis.field) for axis in JOB_AXES if not axis.is_further),
        frozenset(job.axes.items()),
        job.network,
        job.emulator,
        job.steps,
        job.epochs,
        job.warmup_step_count,
        frozenset(job.labels.items()),
        job.time_limit_s,
    )
