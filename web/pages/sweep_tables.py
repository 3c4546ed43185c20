"""Rows of the two tables on a sweep's page: its cells and its jobs."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from farm.cells.choice import CellMetric
from farm.cells.choice import columns_of as metrics_of
from farm.cells.configuration import CellConfiguration, configuration_of
from farm.cells.table import CellLine, CellState, SweepTable
from farm.configuration.axes import AXES, PROFILE_AXES, AxisKind
from farm.gang.lifecycle import JobState
from farm.measuring.measurement import OK
from farm.measuring.quantities import SHOWN, Quantity, known_beside_step_time
from farm.measuring.scaling import Baselines, efficiency
from farm.store.dashboard import SweepJob
from farm.store.measurements.cell_rows import FailedJob
from farm.store.result_tables import MeasurementRow
from farm.store.tables import JobRow
from farm.text.display import short_fingerprint
from web.advice.sweep_advice import Advice

# Axes that have a column of their own; the others share one.
_WITH_COLUMN = frozenset(axis for axis in AXES if axis.is_required or axis in PROFILE_AXES)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class CellShown:
    """What a cell's row shows. `why` its first failed job did; `also`: axes without a column.

    `values`: of the columns' metrics, written.
    """

    line: CellLine
    why: str | None
    also: str
    values: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobShown:
    """What the row of a job shows. `is_advised`: a firm recommendation rests on it.

    `why` it failed or waits; `measurement` None: nothing that counts. `values`: of the columns'
    quantities, written.
    """

    job: JobRow
    configuration: CellConfiguration
    why: str | None
    efficiency_ratio: float | None
    is_advised: bool
    measurement: MeasurementRow | None
    values: Sequence[str]


def columns_of(table: SweepTable, jobs: Sequence[SweepJob]) -> ShownColumns:
    """Return the columns for a sweep's cells and these of its jobs."""
    values = table.values
    known = [known_beside_step_time(item.measurement) for item in jobs]
    return ShownColumns(
        has_workloads=any(axis.name in values for axis in AXES if axis.kind is AxisKind.WORKLOAD),
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


def cells_shown(
    lines: Sequence[CellLine],
    failed: Mapping[int, FailedJob],
    table: SweepTable,
    columns: ShownColumns,
) -> list[CellShown]:
    """Return a row for each cell. `failed`: jobs by id, for their reasons."""
    rest = [axis for axis in table.axes if axis not in _WITH_COLUMN]
    hardware = _hardware(table)
    found = []
    for line in itertools.chain.from_iterable((line, *line.other_kinds) for line in lines):
        why = failed.get(line.failed_job_ids[0]) if line.failed_job_ids else None
        kind = (line.failure_kind or "failed").replace("_", " ")
        also = [axis.named(axis.value_of(line.configuration)) for axis in rest]
        if hardware and line.state is CellState.MEASURED:
            also.append(f"hardware {short_fingerprint(line.fingerprint or 'unknown')}")
        found.append(
            CellShown(
                line=line,
                why=f"{kind}: {why.reason or 'no reason'}" if why else None,
                also=", ".join(also),
                values=[metric.write(metric.read(line)) for metric in columns.metrics],
            )
        )
    return found


def jobs_shown(
    jobs: Sequence[SweepJob], advice: Sequence[Advice], single: Baselines, columns: ShownColumns
) -> list[JobShown]:
    """Return a row for each job. `single`: what one machine makes of the work."""
    advised = {
        measurement_id
        for item in advice
        if item.answer.recommended is not None and item.answer.is_firm
        for measurement_id in item.answer.recommended.measurement_ids
    }
    return [_job_shown(item, advised, single, columns) for item in jobs]


def _job_shown(
    item: SweepJob, advised: set[int], single: Baselines, columns: ShownColumns
) -> JobShown:
    job, measurement = item.job, item.measurement
    configuration = configuration_of(job.spec)
    each = configuration["ranks_per_agent"]
    known = known_beside_step_time(measurement)
    return JobShown(
        job=job,
        configuration=configuration,
        why=job.reason if job.state in (JobState.FAILED, JobState.WAITING) else None,
        efficiency_ratio=efficiency(measurement, single, ranks_per_agent=each)
        if measurement
        else None,
        is_advised=measurement is not None and measurement.id in advised,
        measurement=measurement if measurement and measurement.status == OK else None,
        values=[one.write(known.get(one)) for one in columns.quantities],
    )
