"""Builds the table of a sweep's cells, which pages, commands and figures show.

A sweep may have thousands of cells. Their intervals take the most time, so they are computed only
for the cells that are shown.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from farm.cells.axes import places_of
from farm.cells.configuration import CellConfiguration
from farm.configuration.axis import Axis, Value
from farm.configuration.spec import TrainingPass
from farm.configuration.sweep import Precision
from farm.errors import InvalidSpec
from farm.gang.lifecycle import ACTIVE_JOB_STATES, JobState
from farm.measuring.aggregate import aggregate
from farm.measuring.machine_time import CellCost, Saving, cost_usd, saving
from farm.measuring.measurement import OK, scaling_efficiency_ratio
from farm.measuring.noise import Disturbance
from farm.measuring.precision import (
    CellStatistics,
    Repetition,
    RepetitionState,
    Timeline,
    cell_inflation,
    cell_statistics,
    judged,
)
from farm.measuring.quantities import QUANTITIES
from farm.measuring.scaling import Baselines, baseline_key
from farm.recommend.prices import Prices
from farm.registry import gang_shape, strategy_or_launcher
from farm.store.measurements.cell_rows import CellTotals
from farm.store.measurements.repetitions import repetition_of

_PLACES = {quantity.name: place for place, quantity in enumerate(QUANTITIES)}


class CellState(enum.Enum):
    """The state of a cell's repetitions."""

    MEASURED = "measured"
    FAILED = "failed"  # nothing was measured, and nothing of it is to come
    CANCELLED = "cancelled"
    RUNNING = "running"
    WAITING = "waiting"


@dataclass(frozen=True, kw_only=True)
class CellLine:
    """One configuration of a sweep over its repetitions. What is not known is None.

    `medians` are those of QUANTITIES, in their order, over the repetitions on the kind of hardware
    with most of them, one machine being the baseline of `efficiency_ratio`; `cost_usd` is that of
    an epoch. `failure_kind` is that of the first repetition that failed. `disturbed`: what
    disturbed those of the `succeeded_count` repetitions that were. `repetition_count` of these are
    behind the medians; `set_aside_count` were disturbed and do not count, since undisturbed ones
    do. `other_kinds`: the same cell on other kinds of hardware, which are never pooled; each has
    `of_cell`, the repetitions of the whole cell. `expected_bytes_per_step`: what the strategy's
    theory says that one rank sends, and receives.
    """

    cell_hash: str
    configuration: CellConfiguration
    state: CellState
    repetitions: tuple[Repetition, ...]
    precision: Precision | None
    job_states: tuple[JobState, ...] = ()
    medians: tuple[float | None, ...] = ()
    efficiency_ratio: float | None = None
    cost_usd: float | None = None
    fingerprint: str | None = None
    framework: str | None = None
    expected_bytes_per_step: float | None = None
    failure_kind: str | None = None
    failed_job_ids: tuple[int, ...] = ()
    disturbed: tuple[Disturbance, ...] = ()
    succeeded_count: int = 0
    repetition_count: int = 0
    set_aside_count: int = 0
    first_measured_job_id: int | None = None
    other_kinds: tuple[CellLine, ...] = ()
    of_cell: tuple[Repetition, ...] = ()
    # Of the sweep. Runs after the last of this cell change nothing, so equal cells stay equal.
    timeline: Timeline | None = field(default=None, compare=False, repr=False)

    def median(self, name: str) -> float | None:
        """Return the median of a quantity."""
        return self.medians[_PLACES[name]] if self.medians else None

    @property
    def medians_by_name(self) -> dict[str, float | None]:
        """Return the median of every quantity."""
        return {name: self.median(name) for name in _PLACES}

    @property
    def median_s(self) -> float | None:
        """The median step time."""
        return self.median("step_time_s")

    @property
    def disturbed_count(self) -> int:
        """Of the repetitions that succeeded, how many were disturbed."""
        return len(self.disturbed)

    @property
    def is_disturbed(self) -> bool:
        """Whether the figures include disturbed repetitions."""
        return self.disturbed_count > self.set_aside_count

    @property
    def disturbed_text(self) -> str:
        """How many repetitions were disturbed and count, or do not; empty: none was."""
        counted = self.disturbed_count - self.set_aside_count
        parts = [f"{counted} disturbed"] if counted else []
        parts += [f"{self.set_aside_count} disturbed not counted"] if self.set_aside_count else []
        return ", ".join(parts)

    @property
    def time_per_epoch_s(self) -> float | None:
        """The median time of an epoch."""
        return self.median("time_per_epoch_s")

    @functools.cached_property  # kept with the cell, hence no slots
    def statistics(self) -> CellStatistics:
        """The interval, the outliers and the target; worked out when asked for."""
        known = cell_statistics(self.repetitions, self.precision, self.timeline)
        if not self.of_cell:
            return known
        whole = cell_statistics(self.of_cell, self.precision, self.timeline)
        return dataclasses.replace(known, target=whole.target)

    @functools.cached_property
    def inflation(self) -> float:
        """Factor by which correlation between runs increases the variance of the mean."""
        return cell_inflation([job_id for job_id, _ in judged(self.repetitions)], self.timeline)

    @functools.cached_property
    def times_s(self) -> list[float]:
        """The step time of each repetition behind the median."""
        return [time_s for _, time_s in judged(self.repetitions)]

    @property
    def first_job_id(self) -> int:
        """The most informative job: a measured one, else a failed one."""
        if self.first_measured_job_id is not None:
            return self.first_measured_job_id
        if self.state is CellState.FAILED and self.failed_job_ids:
            return self.failed_job_ids[0]
        return self.repetitions[0].job_id


@dataclass(frozen=True, kw_only=True)
class SweepTable:
    """`lines`: similar cells next to each other.

    `values`: differing values by axis. `single`: baselines.

    `axes` and `places`: those axes, and where each line stands on them. `totals`: of the whole
    sweep, where it has so many jobs that cells were left out. `machine_s`: of all attempts,
    duration times agents. `skipped`: a line for each cell that cannot run and was never added.
    `token`: of these very cells.
    """

    lines: Sequence[CellLine]
    axes: Sequence[Axis]
    places: Sequence[tuple[Value, ...]]
    values: Mapping[str, Sequence[Value]]
    single: Baselines
    precision: Precision | None
    totals: CellTotals | None
    machine_s: float
    saving: Saving | None
    skipped: Sequence[str] = ()
    token: object = field(default_factory=object)

    @property
    def is_complete(self) -> bool:
        """Whether no cell is left out."""
        return self.totals is None

    @functools.cached_property  # kept with the table, hence no slots
    def first_gang_job_id(self) -> int | None:
        """The first measured job of several machines, whose page has series by role."""
        gangs = (
            line.first_job_id
            for line in self.lines
            if line.state is CellState.MEASURED and not line.configuration.is_one_machine
        )
        return min(gangs, default=None)

    @functools.cached_property
    def measured(self) -> Sequence[CellLine]:
        """The lines with a measurement, one for each kind of hardware of a cell."""
        return [
            kind
            for line in self.lines
            if line.state is CellState.MEASURED
            for kind in (line, *line.other_kinds)
        ]

    @functools.cached_property
    def is_any_measured(self) -> bool:
        """Whether some line has a measurement."""
        return any(line.state is CellState.MEASURED for line in self.lines)

    @functools.cached_property
    def failed_count(self) -> int:
        """How many lines have a job that failed."""
        return sum(bool(line.failed_job_ids) for line in self.lines)


def make_table(
    lines: Sequence[CellLine],
    *,
    single: Baselines,
    precision: Precision | None,
    totals: CellTotals | None = None,
    spent_s: Mapping[str, float],
    skipped: Sequence[str] = (),
) -> SweepTable:
    """Put cells into a table. `spent_s`: by hash, how long they kept agents times their number."""
    axes, places, values = places_of([line.configuration for line in lines])
    return SweepTable(
        lines=lines,
        axes=axes,
        places=places,
        values=values,
        single=single,
        precision=precision,
        totals=totals,
        machine_s=sum(spent_s.values()),
        saving=saving_of(lines, spent_s) if precision and totals is None else None,
        skipped=skipped,
    )


def make_line(
    configuration: CellConfiguration,
    jobs: Sequence[Any],
    *,
    precision: Precision | None,
    single: Baselines,
    prices: Prices,
    timeline: Timeline,
    of_cell: tuple[Repetition, ...] = (),
) -> CellLine:
    """Sum up jobs of a cell. `of_cell`: the repetitions of the whole cell; empty: these are all."""
    repetitions = tuple(repetition_of(job) for job in jobs)
    own, *others = _succeeded_by_hardware(jobs, repetitions) or [[]]
    by_job = {repetition.job_id: repetition for repetition in repetitions}
    found = aggregate(own, lambda job: by_job[job.id])
    first = found.counted[0] if found.counted else None
    price = None if first is None else prices.by_type.get(first.instance_type or "")
    failed = [job for job in jobs if job.state is JobState.FAILED]
    return CellLine(
        cell_hash=jobs[0].cell_hash,
        configuration=configuration,
        state=_state(jobs, is_measured=first is not None),
        job_states=tuple(job.state for job in jobs),
        repetitions=repetitions,
        precision=precision,
        medians=tuple(found.medians.values()),
        efficiency_ratio=_efficiency(
            configuration, first, found.medians["throughput_examples_per_s"], single
        ),
        cost_usd=cost_usd(
            configuration.machine_count,
            found.medians["time_per_epoch_s"],
            price.usd_per_hour if price else None,
        ),
        fingerprint=first and first.fingerprint,
        framework=first and first.framework,
        expected_bytes_per_step=_expected_bytes_per_step(configuration, first),
        failure_kind=failed[0].failure_kind if failed else None,
        failed_job_ids=tuple(job.id for job in failed),
        disturbed=found.disturbed,
        succeeded_count=len(own),
        repetition_count=len(found.counted),
        set_aside_count=len(found.set_aside),
        first_measured_job_id=first and first.id,
        of_cell=of_cell,
        other_kinds=tuple(
            make_line(
                configuration,
                of_kind,
                precision=precision,
                single=single,
                prices=prices,
                timeline=timeline,
                of_cell=repetitions,
            )
            for of_kind in others
        ),
        timeline=timeline,
    )


def _succeeded_by_hardware(
    jobs: Sequence[Any], repetitions: Sequence[Repetition]
) -> list[list[Any]]:
    """Return the jobs that succeeded by kind of hardware, the kind of the median first."""
    of_median = {job_id for job_id, _ in judged(repetitions)}
    succeeded = [job for job in jobs if job.state is JobState.SUCCEEDED and job.status == OK]
    kinds: dict[str | None, list[Any]] = {}
    for job in sorted(succeeded, key=lambda job: job.id not in of_median):
        kinds.setdefault(job.fingerprint, []).append(job)
    return list(kinds.values())


def _state(jobs: Sequence[Any], *, is_measured: bool) -> CellState:
    if is_measured:
        return CellState.MEASURED
    states = {job.state for job in jobs}
    if states & ACTIVE_JOB_STATES:
        return CellState.RUNNING
    if JobState.WAITING in states:
        return CellState.WAITING
    return CellState.FAILED if JobState.FAILED in states else CellState.CANCELLED


def _efficiency(
    configuration: CellConfiguration, first: Any, throughput: float | None, single: Baselines
) -> float | None:
    alone = None if first is None else single.get(baseline_key(first))
    if throughput is None or not alone:
        return None
    return scaling_efficiency_ratio(
        throughput_examples_per_s=throughput,
        machine_count=configuration.training_machine_count,
        single_examples_per_s=alone,
    )


def _expected_bytes_per_step(configuration: CellConfiguration, first: Any) -> float | None:
    """Ask the strategy; None where nothing is exchanged or this program does not know it."""
    is_training = configuration["training_pass"] == TrainingPass.FORWARD_BACKWARD.value
    if first is None or first.gradient_bytes is None or not is_training:
        return None
    try:
        way = strategy_or_launcher(configuration["strategy"])
    except InvalidSpec:
        return None
    return way.traffic(gang_shape(configuration.values), first.gradient_bytes).bytes


def saving_of(lines: Sequence[CellLine], spent_s: Mapping[str, float]) -> Saving | None:
    """Return what stopping at the target precision saved; `spent_s`: machine time by cell hash."""
    costs = []
    for line in lines:
        target = line.statistics.target
        if target is not None:
            measured = sum(r.state is RepetitionState.MEASURED for r in line.repetitions)
            costs.append(
                CellCost(
                    target=target,
                    repetition_count=measured,
                    machine_s=spent_s.get(line.cell_hash, 0.0),
                )
            )
    return saving(costs)
