"""Caches the rows of a sweep page's tables as HTML, keyed by their content.

Of a page of a hundred lines hardly any has changed since it was looked at last, and to write them
takes as long as all the rest of the page.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flask import current_app
from markupsafe import Markup

from farm.cells.choice import CellMetric
from farm.cells.choice import columns_of as metrics_of
from farm.cells.configuration import CellConfiguration, configuration_of
from farm.cells.table import CellLine, CellState, SweepTable
from farm.configuration.axes import AXES, PROFILE_AXES
from farm.gang.lifecycle import JobState
from farm.measuring.measurement import OK
from farm.measuring.quantities import SHOWN, Quantity, known_beside_step_time
from farm.measuring.scaling import Baselines, efficiency
from farm.store.dashboard import SweepJob
from farm.store.measurements.cell_rows import FailedJob
from farm.text.display import short_fingerprint
from web.advice.advice_cache import Advice

# Axes that have a column of their own; the others share one.
_WITH_COLUMN = frozenset(axis for axis in AXES if axis.is_required or axis in PROFILE_AXES)
_MOST_KEPT = 10_000  # of a kilobyte each


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownColumns:
    """Which columns tell anything, of both tables."""

    has_workloads: bool
    has_networks: bool
    has_further: bool
    has_targets: bool
    has_repetitions: bool
    metrics: tuple[CellMetric, ...]  # of cells
    quantities: tuple[Quantity, ...]  # of jobs

    @property
    def has_prices(self) -> bool:
        """Whether a cost is shown."""
        return any(metric.name == "cost" for metric in self.metrics)


@dataclass(frozen=True, slots=True)
class CellShown:
    """What a cell's line shows. `why` its first failed job did; `also`: axes without a column.

    `values`: of the columns' metrics, written.
    """

    line: CellLine
    why: str | None
    also: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownMeasurement:
    """What a job has measured. `values`: of the columns' quantities, written.

    `flags`: what disturbed it.
    """

    step_time_s: float | None
    step_time_p25_s: float | None
    step_time_p75_s: float | None
    values: tuple[str, ...]
    flags: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobShown:
    """What the line of a job shows. `is_advised`: a firm recommendation rests on it.

    `why` it failed or waits; `measured` None: nothing that counts.
    """

    job_id: int
    repetition: int
    configuration: CellConfiguration
    state: str
    failure_kind: str | None
    why: str | None
    efficiency_ratio: float | None
    is_advised: bool
    measured: ShownMeasurement | None


def columns_of(table: SweepTable, jobs: Sequence[SweepJob]) -> ShownColumns:
    """Return the columns for a sweep's cells and these of its jobs."""
    values = table.values
    known = [known_beside_step_time(item.measurement) for item in jobs]
    return ShownColumns(
        has_workloads=any(name in values for name in ("model", "dataset", "pass")),
        has_networks=any(
            not axis.is_left_out(axis.value_of(line.configuration))
            for line in table.lines
            for axis in PROFILE_AXES
        ),
        has_further=any(axis not in _WITH_COLUMN for axis in table.axes)
        or _hardware(table) != set(),
        has_targets=table.precision is not None,
        has_repetitions=any(item.job.repetition for item in jobs),
        metrics=tuple(metrics_of(table.measured)),
        quantities=tuple(one for one in SHOWN if any(one in of_job for of_job in known)),
    )


def _hardware(table: SweepTable) -> set[str | None]:
    """Return the kinds of hardware that cells were measured on, if there are several."""
    kinds = {line.fingerprint for line in table.measured}
    return kinds if len(kinds) > 1 else set()


def cell_lines(
    lines: Sequence[CellLine],
    failed: Mapping[int, FailedJob],
    table: SweepTable,
    columns: ShownColumns,
) -> list[Markup]:
    """Return a line of HTML, or two, for each cell. `failed`: jobs by id, for their reasons."""
    rest = [axis for axis in table.axes if axis not in _WITH_COLUMN]
    hardware = _hardware(table)
    written = []
    for line in itertools.chain.from_iterable((line, *line.other_kinds) for line in lines):
        why = failed.get(line.failed_job_ids[0]) if line.failed_job_ids else None
        kind = (line.failure_kind or "failed").replace("_", " ")
        also = [axis.named(axis.value_of(line.configuration)) for axis in rest]
        if hardware and line.state is CellState.MEASURED:
            also.append(f"hardware {short_fingerprint(line.fingerprint or 'unknown')}")
        reason = f"{kind}: {why.reason or 'no reason'}" if why else None
        values = tuple(metric.write(metric.read(line)) for metric in columns.metrics)
        written.append(_cell_line(CellShown(line, reason, ", ".join(also), values), columns))
    return written


def job_lines(
    jobs: Sequence[SweepJob], advice: Sequence[Advice], single: Baselines, columns: ShownColumns
) -> list[Markup]:
    """Return a line of HTML, or two, for each job. `single`: what one machine makes of the work."""
    advised = {
        measurement_id
        for item in advice
        if item.answer.recommended is not None and item.answer.is_firm
        for measurement_id in item.answer.recommended.measurement_ids
    }
    return [_job_line(_job_shown(item, advised, single, columns), columns) for item in jobs]


def _job_shown(
    item: SweepJob, advised: set[int], single: Baselines, columns: ShownColumns
) -> JobShown:
    job, measurement = item.job, item.measurement
    configuration = configuration_of(job.spec)
    each = configuration["ranks_per_agent"]
    return JobShown(
        job_id=job.id,
        repetition=job.repetition,
        configuration=configuration,
        state=job.state.value,
        failure_kind=job.failure_kind,
        why=job.reason if job.state in (JobState.FAILED, JobState.WAITING) else None,
        efficiency_ratio=efficiency(measurement, single, ranks_per_agent=each)
        if measurement
        else None,
        is_advised=measurement is not None and measurement.id in advised,
        measured=_measured(item, columns),
    )


def _measured(item: SweepJob, columns: ShownColumns) -> ShownMeasurement | None:
    of = item.measurement
    if of is None or of.status != OK:
        return None
    known = known_beside_step_time(of)
    return ShownMeasurement(
        step_time_s=of.step_time_s,
        step_time_p25_s=of.step_time_p25_s,
        step_time_p75_s=of.step_time_p75_s,
        values=tuple(one.write(known.get(one)) for one in columns.quantities),
        flags=tuple(flag["message"] for flag in of.flags),
    )


@functools.lru_cache(_MOST_KEPT)
def _cell_line(cell: CellShown, columns: ShownColumns) -> Markup:
    return _written("cell_line", cell, columns)


@functools.lru_cache(_MOST_KEPT)
def _job_line(job: JobShown, columns: ShownColumns) -> Markup:
    return _written("job_line", job, columns)


def _written(macro: str, shown: CellShown | JobShown, columns: ShownColumns) -> Markup:
    template = current_app.jinja_env.get_template("_sweep_lines.html")
    written: Markup = getattr(template.module, macro)(shown, columns)
    return written
