"""Reads the cells of a sweep from the store: all at first, later only those that changed."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.orm import Session

from farm.cells.axes import cell_sort_key
from farm.cells.configuration import configuration_of
from farm.cells.json_forms import CellSummary, SweepCells
from farm.cells.option_table import OptionLine
from farm.cells.table import CellLine, SweepTable, make_line, make_table, saving_of
from farm.configuration.sweep import Precision
from farm.measuring.measurement import OK
from farm.measuring.precision import Timeline, judged
from farm.measuring.scaling import Baselines, baselines
from farm.recommend.prices import Prices
from farm.store.measurements.cell_rows import (
    CellJobs,
    cell_totals,
    cells_of_measurements,
    changed_groups,
    job_groups,
    jobs_of_cells,
    machine_s_by_cell,
    specs_of,
)
from farm.store.measurements.repetitions import CellKey, latest_runs, timeline_of_rows
from farm.store.sweeps.sweeps import stored_precision, sweep_of_id

_MOST_JOBS_APART = 500  # of changed cells, asked for one by one


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepReading:
    """A sweep as it was read: the jobs of each cell, and their summary."""

    jobs: CellJobs
    table: SweepTable
    spent_s: Mapping[str, float]  # by cell, see `make_table`
    stamp: Hashable = None
    # Specifications by cell, of those that were asked for; kept, since they never change.
    specs: dict[str, Mapping[str, Any]] = field(default_factory=dict)


def read_sweep(
    session: Session,
    sweep_id: int,
    *,
    prices: Prices,
    before: SweepReading | None = None,
    max_jobs: int | None = None,
) -> SweepReading:
    """Sum up the cells of a sweep. `before`: an older reading, whose unchanged cells are reused.

    `max_jobs`: of more jobs than that, only the first whole cells are read; None: all.

    Raises:
        NotFound: there is no such sweep.
    """
    sweep = sweep_of_id(session, sweep_id)
    precision = stored_precision(sweep)
    if before is not None:
        changed = changed_groups(session, sweep_id, before.jobs, max_jobs=max_jobs)
        if changed is not None:
            return _renewed(session, sweep_id, before, changed, precision=precision, prices=prices)
    jobs = job_groups(session, sweep_id, max_jobs=max_jobs)
    single = _baselines(jobs.by_cell)
    firsts = {of_cell[0].id: cell_hash for cell_hash, of_cell in jobs.by_cell.items()}
    specs = specs_of(session, list(firsts))
    configurations = {
        cell_hash: configuration_of(specs[job_id]) for job_id, cell_hash in firsts.items()
    }
    timeline = timeline_of_rows(job for of_cell in jobs.by_cell.values() for job in of_cell)
    lines = [
        make_line(
            configurations[one],
            of_cell,
            precision=precision,
            single=single,
            prices=prices,
            timeline=timeline,
        )
        for one, of_cell in jobs.by_cell.items()
    ]
    lines.sort(key=lambda line: cell_sort_key(line.configuration))
    spent_s = machine_s_by_cell(session, sweep_id)
    table = make_table(
        lines,
        single=single,
        precision=precision,
        totals=None if jobs.is_complete else cell_totals(session, sweep_id),
        spent_s=spent_s,
        skipped=tuple(sweep.skipped),
    )
    return SweepReading(jobs=jobs, table=table, spent_s=spent_s)


def first_cells(
    session: Session, reading: SweepReading, *, max_jobs: int | None = None
) -> SweepCells:
    """Return the first whole cells with at most `max_jobs` jobs. Mutates `reading.specs`.

    `max_jobs` None: all.
    """
    lines, job_count = [], 0
    for line in reading.table.lines:
        job_count += len(line.repetitions)
        if max_jobs is not None and job_count > max_jobs:
            break
        lines.append(line)
    firsts = {
        line.repetitions[0].job_id: line.cell_hash
        for line in lines
        if line.cell_hash not in reading.specs
    }
    for job_id, spec in specs_of(session, list(firsts)).items():
        reading.specs[firsts[job_id]] = spec
    return SweepCells(
        precision=reading.table.precision,
        is_complete=reading.table.is_complete and len(lines) == len(reading.table.lines),
        cells=tuple(
            CellSummary(
                line=line,
                spec=reading.specs[line.cell_hash],
                machine_s=reading.spent_s.get(line.cell_hash, 0.0),
            )
            for line in lines
        ),
    )


def with_cells(session: Session, lines: Sequence[OptionLine]) -> list[OptionLine]:
    """Return this farm's options with their cells, if they use the same measurements.

    No other has the same figures: of several cells, in one sweep or more, of an import, or without
    those that the recommender sets aside.
    """
    ids = [i for line in lines if line.is_measured for i in line.option.measurement_ids]
    cells = cells_of_measurements(session, ids)
    keys: list[CellKey | None] = []
    for line in lines:
        of_line = {cells.get(i) for i in line.option.measurement_ids if line.is_measured}
        keys.append(of_line.pop() if len(of_line) == 1 else None)
    jobs = jobs_of_cells(session, {key for key in keys if key is not None})
    timelines = {
        sweep_id: latest_runs(session, sweep_id, [one for of, one in jobs if of == sweep_id])
        for sweep_id in {sweep_id for sweep_id, _ in jobs}
    }
    precisions = {
        sweep_id: stored_precision(sweep_of_id(session, sweep_id)) for sweep_id in timelines
    }
    return [
        line
        if key is None
        else dataclasses.replace(
            line, cell=_cell_of(line, jobs[key], precisions[key[0]], timelines[key[0]])
        )
        for line, key in zip(lines, keys, strict=True)
    ]


def _cell_of(
    line: OptionLine, jobs: Sequence[Any], precision: Precision | None, timeline: Timeline
) -> CellLine | None:
    """Return the cell, on the kind of hardware on which the option's measurements are its own."""
    whole = make_line(
        line.configuration,
        jobs,
        precision=precision,
        single={},
        prices=Prices(),
        timeline=timeline,
    )
    measurement_ids = {job.id: job.measurement_id for job in jobs}
    for kind in (whole, *whole.other_kinds):
        counted = {measurement_ids[job_id] for job_id, _ in judged(kind.repetitions)}
        if counted == set(line.option.measurement_ids):
            return kind
    return None


def _renewed(
    session: Session,
    sweep_id: int,
    before: SweepReading,
    jobs: CellJobs,
    *,
    precision: Precision | None,
    prices: Prices,
) -> SweepReading:
    """Work out again what has changed: as a rule a cell or two of thousands."""
    old, table = before.jobs.by_cell, before.table
    changed = {one: of_cell for one, of_cell in jobs.by_cell.items() if old[one] is not of_cell}
    single = table.single
    if any(_is_baseline(job) for one, new in changed.items() for job in (*old[one], *new)):
        single = _baselines(jobs.by_cell)
    # A cell is the same if its jobs are, and the baselines that it is held against.
    is_same_otherwise = single == table.single and precision == table.precision
    if is_same_otherwise and not changed:
        return dataclasses.replace(before, jobs=jobs)
    timeline = timeline_of_rows(job for of_cell in jobs.by_cell.values() for job in of_cell)
    lines = [
        line
        if is_same_otherwise and line.cell_hash not in changed
        else make_line(
            line.configuration,
            jobs.by_cell[line.cell_hash],
            precision=precision,
            single=single,
            prices=prices,
            timeline=timeline,
        )
        for line in table.lines
    ]
    job_ids = [job.id for of_cell in changed.values() for job in of_cell]
    some = job_ids if len(job_ids) <= _MOST_JOBS_APART else None
    spent_s = {**before.spent_s, **machine_s_by_cell(session, sweep_id, job_ids=some)}
    return dataclasses.replace(
        before,
        jobs=jobs,
        spent_s=spent_s,
        table=dataclasses.replace(
            table,
            lines=lines,
            single=single,
            precision=precision,
            machine_s=sum(spent_s.values()),
            saving=saving_of(lines, spent_s) if precision else None,
            token=object(),
        ),
    )


def _is_baseline(job: Any) -> bool:
    return bool(job.world_size == 1 and job.status == OK)


def _baselines(by_cell: Mapping[str, Sequence[Any]]) -> Baselines:
    return baselines(job for jobs in by_cell.values() for job in jobs if _is_baseline(job))
