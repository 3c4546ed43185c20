"""The cells of a sweep as tables and figures show them; `farm.figures.sweep_reading` reads them.

A sweep may have thousands; what costs most, the interval of a cell, is worked out only for the
cells that are shown.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from farm.core.axes import Axis, Value
from farm.core.lifecycle import JobState
from farm.core.machine_time import cost_usd
from farm.core.means import weighted_median
from farm.core.measurement import OK, scaling_efficiency_ratio
from farm.core.noise import UNDISTURBED, disturbance_of_row
from farm.core.precision import (
    CellStatistics,
    Outcome,
    Precision,
    Repetition,
    Timeline,
    cell_inflation,
    cell_statistics,
    judged,
)
from farm.core.saving import CellCost, Saving, saving
from farm.core.scaling import Baselines, workload
from farm.figures.cell_axes import places_of
from farm.figures.cell_configuration import CellConfiguration
from farm.recommend.prices import Prices
from farm.store.cell_rows import CellTotals
from farm.store.repetitions import repetition_of


class CellState(enum.Enum):
    """What a cell has come to so far."""

    MEASURED = "measured"
    FAILED = "failed"  # nothing was measured, and nothing of it is to come
    CANCELLED = "cancelled"
    RUNNING = "running"
    WAITING = "waiting"


@dataclass(frozen=True, kw_only=True)
class CellLine:
    """One configuration of a sweep over its repetitions. What is not known is None.

    Values are medians over the repetitions on the kind of hardware with most of them, one machine
    being the baseline of `efficiency_ratio`; `cost_usd` is that of an epoch. `failure_kind` is that
    of the first repetition that failed. `disturbed_count`: of the `succeeded_count` repetitions.
    """

    cell_hash: str
    configuration: CellConfiguration
    state: CellState
    repetitions: tuple[Repetition, ...]
    precision: Precision | None
    median_s: float | None = None
    throughput_examples_per_s: float | None = None
    time_per_epoch_s: float | None = None
    efficiency_ratio: float | None = None
    cost_usd: float | None = None
    fingerprint: str | None = None
    failure_kind: str | None = None
    failed_job_ids: tuple[int, ...] = ()
    disturbed_count: int = 0
    succeeded_count: int = 0
    # Of the sweep. Runs after the last of this cell change nothing, so equal cells stay equal.
    timeline: Timeline | None = field(default=None, compare=False, repr=False)

    @functools.cached_property  # kept with the cell, hence no slots
    def statistics(self) -> CellStatistics:
        """The interval, the outliers and the target; worked out when asked for."""
        return cell_statistics(self.repetitions, self.precision, self.timeline)

    @functools.cached_property
    def inflation(self) -> float:
        """By how much the variance of the mean is larger since runs depend on each other."""
        return cell_inflation([job_id for job_id, _ in judged(self.repetitions)], self.timeline)

    @functools.cached_property
    def times_s(self) -> list[float]:
        """The step time of each repetition behind the median."""
        return [time_s for _, time_s in judged(self.repetitions)]

    @functools.cached_property
    def compared(self) -> CellConfiguration:
        """What two cells share that may be compared: not how long, and not on which machines."""
        return dataclasses.replace(self.configuration, length="", labels="")

    @property
    def first_job_id(self) -> int:
        """The job to look at first: one that failed where nothing was measured."""
        if self.state is CellState.FAILED and self.failed_job_ids:
            return self.failed_job_ids[0]
        return self.repetitions[0].job_id


@dataclass(frozen=True, kw_only=True)
class SweepTable:
    """`lines` have like next to like; `values`: by axis what they differ in; `single`: baselines.

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
) -> CellLine:
    repetitions = tuple(repetition_of(job) for job in jobs)
    times = judged(repetitions)
    of_median = {job_id for job_id, _ in times}
    # A job by epochs whose every step was partial has a time per epoch and no step time.
    succeeded = [job for job in jobs if job.state is JobState.SUCCEEDED and job.status == OK]
    measured = [job for job in jobs if job.id in of_median] or succeeded
    failed = [job for job in jobs if job.state is JobState.FAILED]
    weights = {r.job_id: r.disturbance.weight for r in repetitions}
    throughput = _median([(j.throughput_examples_per_s, weights[j.id]) for j in measured])
    epoch_s = _median([(j.time_per_epoch_s, weights[j.id]) for j in measured])
    return CellLine(
        cell_hash=jobs[0].cell_hash,
        configuration=configuration,
        state=_state(jobs, is_measured=bool(measured)),
        repetitions=repetitions,
        precision=precision,
        median_s=_median([(time_s, weights[job_id]) for job_id, time_s in times]),
        throughput_examples_per_s=throughput,
        time_per_epoch_s=epoch_s,
        efficiency_ratio=_efficiency(measured, throughput, single),
        cost_usd=_cost(configuration, measured, epoch_s, prices),
        fingerprint=measured[0].fingerprint if measured else None,
        failure_kind=failed[0].failure_kind if failed else None,
        failed_job_ids=tuple(job.id for job in failed),
        disturbed_count=sum(disturbance_of_row(job) != UNDISTURBED for job in succeeded),
        succeeded_count=len(succeeded),
        timeline=timeline,
    )


def _state(jobs: Sequence[Any], *, is_measured: bool) -> CellState:
    if is_measured:
        return CellState.MEASURED
    states = {job.state for job in jobs}
    if states & {JobState.LEASED, JobState.RUNNING}:
        return CellState.RUNNING
    if JobState.WAITING in states:
        return CellState.WAITING
    return CellState.FAILED if JobState.FAILED in states else CellState.CANCELLED


def _efficiency(
    measured: Sequence[Any], throughput: float | None, single: Baselines
) -> float | None:
    if not measured or throughput is None:
        return None
    row = measured[0]
    alone = single.get(workload(row))
    if not alone:
        return None
    return scaling_efficiency_ratio(
        throughput_examples_per_s=throughput,
        world_size=row.world_size,
        single_examples_per_s=alone,
    )


def _cost(
    configuration: CellConfiguration,
    measured: Sequence[Any],
    epoch_s: float | None,
    prices: Prices,
) -> float | None:
    price = prices.by_type.get(measured[0].instance_type or "") if measured else None
    return cost_usd(configuration.machine_count, epoch_s, price.usd_per_hour if price else None)


def saving_of(lines: Sequence[CellLine], spent_s: Mapping[str, float]) -> Saving | None:
    costs = []
    for line in lines:
        target = line.statistics.target
        if target is not None:
            measured = sum(r.outcome is Outcome.MEASURED for r in line.repetitions)
            costs.append(
                CellCost(
                    target=target,
                    repetition_count=measured,
                    machine_s=spent_s.get(line.cell_hash, 0.0),
                )
            )
    return saving(costs)


def _median(weighted: Sequence[tuple[float | None, float]]) -> float | None:
    """Return the median of what is known of the (value, weight); disturbed runs weigh less."""
    known = [(value, weight) for value, weight in weighted if value is not None]
    return weighted_median(known) if known else None
