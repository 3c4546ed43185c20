"""The cells of a sweep: their repetitions, how precise they are, and the next ones to run."""

from __future__ import annotations

import dataclasses
import datetime as dt
import itertools
import random
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter, itemgetter
from typing import Any, TypeAlias

from sqlalchemy import ColumnElement, Select, func, or_, select, true, tuple_
from sqlalchemy.orm import Session

from farm.configuration.axes import REQUIRED_AXES_IN_ORDER
from farm.configuration.spec import JobSpec
from farm.configuration.sweep import Precision
from farm.errors import InvalidSpec
from farm.gang.lifecycle import FINAL_JOB_STATES, AttemptState, JobState
from farm.measuring.measurement import OK
from farm.measuring.noise import UNDISTURBED, disturbance_of
from farm.measuring.precision import (
    Repetition,
    RepetitionState,
    Run,
    Timeline,
    next_repetitions,
    timeline_of,
)
from farm.messages.trainer_lines import CONFIGURATION_FAILURES
from farm.store.base import is_known
from farm.store.result_tables import MEASUREMENTS, MeasurementRow
from farm.store.sweeps.sweeps import add_jobs, stored_precision
from farm.store.tables import AgentRow, AttemptRow, JobRow, RankRow, SweepRow
from farm.values.codec import from_json

# Like next to like: a sweep's jobs as people compare them, the repetitions of a cell together.
BY_CELL = (
    *(getattr(JobRow, axis.field) for axis in REQUIRED_AXES_IN_ORDER),
    JobRow.cell_hash,
    JobRow.repetition,
    JobRow.id,
)
# Of a sweep that is extended only its latest runs are read: more than the correlation of
# neighbours is estimated from, with those that ended together with the cell's own.
_LATEST_RUNS = 1000
_CONFIGURATION_FAILED = frozenset(kind.value for kind in CONFIGURATION_FAILURES)


CellKey: TypeAlias = tuple[int, str]  # the sweep's id, and the hash


@dataclass(frozen=True, slots=True, kw_only=True)
class CellServers:
    """The agents that measured a cell, with numbers of attempts, and their kinds of hardware."""

    run_counts: dict[str, int] = field(default_factory=dict)
    fingerprints: set[str] = field(default_factory=set)


def extend_cells(session: Session, tokens: Collection[int], *, now: dt.datetime) -> int:
    """Add the next repetitions to the cells whose jobs these attempts ended; return how many.

    To be called last in the transaction that ends them, so that a sweep is finished only when all
    its cells are precise or given up. Sweeps are locked in the order of their ids: who comes
    second sees what the first has ended and added, so that a cell whose last two repetitions end
    at once is extended once.
    """
    if not tokens:
        return 0
    ended = session.execute(
        select(JobRow.sweep_id, JobRow.cell_hash)
        .join(AttemptRow, AttemptRow.job_id == JobRow.id)
        .where(AttemptRow.id.in_(tokens), JobRow.state.in_(FINAL_JOB_STATES))
        .distinct()
        .order_by(JobRow.sweep_id, JobRow.cell_hash)
    ).all()
    if not ended:
        return 0
    sweeps = session.scalars(
        select(SweepRow).where(SweepRow.id.in_({row.sweep_id for row in ended}))
    )
    precisions = {sweep.id: stored_precision(sweep) for sweep in sweeps}
    cells = [(s, c) for s, c in ended if precisions[s] is not None]
    if not cells:
        return 0
    precise = {sweep_id for sweep_id, _ in cells}
    session.execute(
        select(SweepRow.id).where(SweepRow.id.in_(precise)).order_by(SweepRow.id).with_for_update()
    )
    jobs: dict[tuple[int, str], list[Any]] = {}
    for job in session.execute(
        _repetitions(tuple_(JobRow.sweep_id, JobRow.cell_hash).in_(cells)).where(
            # Named apart too, for the index: what a database makes of pairs differs.
            JobRow.sweep_id.in_(precise),
            JobRow.cell_hash.in_({cell_hash for _, cell_hash in cells}),
        )
    ):
        jobs.setdefault((job.sweep_id, job.cell_hash), []).append(job)
    # Together what goes to one sweep, as most of it does.
    more: dict[tuple[int, int], list[JobSpec]] = {}
    for sweep_id, of_sweep in itertools.groupby(cells, key=itemgetter(0)):
        precision = precisions[sweep_id]
        assert precision is not None, "the others are left out above"
        hashes = [cell_hash for _, cell_hash in of_sweep]
        timeline = latest_runs(session, sweep_id, hashes)
        for cell_hash in hashes:
            of_cell = jobs[sweep_id, cell_hash]
            specs = _next_specs(of_cell, precision, timeline)
            more.setdefault((sweep_id, of_cell[-1].priority), []).extend(specs)
    for (sweep_id, priority), specs in more.items():
        add_jobs(session, sweep_id, _spread(specs), priority=priority, now=now)
    return sum(map(len, more.values()))


def timeline_of_rows(rows: Iterable[Any]) -> Timeline:
    """Return the timeline of all jobs of a sweep, given in any order.

    Measurements are numbered in the order in which they were stored, at the end of their jobs.
    """
    measured = sorted(
        (
            row
            for row in rows
            if row.step_time_s is not None and _is_measured(row) and row.measurement_id is not None
        ),
        key=attrgetter("measurement_id"),
    )
    return timeline_of(
        (row.id, row.cell_hash, row.fingerprint, row.step_time_s) for row in measured
    )


def latest_runs(
    session: Session, sweep_id: int, cell_hashes: Collection[str], *, most_jobs: int | None = None
) -> Timeline:
    """Return the timeline of the 1,000 latest runs of a sweep, and of all of these cells.

    `most_jobs`: of so many of its jobs, the latest; None: of all.
    """
    ago = func.row_number().over(
        partition_by=MeasurementRow.fingerprint, order_by=MeasurementRow.id.desc()
    )
    jobs = select(JobRow.id).where(JobRow.sweep_id == sweep_id).order_by(JobRow.id.desc())
    of_jobs = true() if most_jobs is None else JobRow.id.in_(jobs.limit(most_jobs))
    ranked = (
        select(
            JobRow.id.label("job_id"),
            JobRow.cell_hash,
            MeasurementRow.fingerprint,
            MEASUREMENTS.step_time_s,
            ago.label("ago"),
        )
        .join(MeasurementRow, MeasurementRow.job_id == JobRow.id)
        .where(
            JobRow.sweep_id == sweep_id,
            of_jobs,
            JobRow.state == JobState.SUCCEEDED,
            MeasurementRow.status == OK,
            is_known(MEASUREMENTS.step_time_s),
        )
        .subquery()
    )
    rows = session.execute(
        select(ranked).where(or_(ranked.c.ago <= _LATEST_RUNS, ranked.c.cell_hash.in_(cell_hashes)))
    )
    return Timeline(
        Run(
            job_id=row.job_id,
            place=-row.ago,
            cell_hash=row.cell_hash,
            fingerprint=row.fingerprint,
            step_time_s=row.step_time_s,
        )
        for row in rows
    )


def _spread(specs: Sequence[JobSpec]) -> list[JobSpec]:
    """Return repetitions of several cells such that those of one cell are apart in time.

    First the next one of every cell, then the one after it; each round in a random order.
    """
    rounds: dict[int, list[JobSpec]] = {}
    for spec in specs:
        rounds.setdefault(spec.repetition, []).append(spec)
    return [
        spec
        for repetition in sorted(rounds)
        for spec in random.Random(repetition).sample(rounds[repetition], len(rounds[repetition]))
    ]


def cell_servers(session: Session, cells: Collection[CellKey]) -> dict[CellKey, CellServers]:
    """Return by (sweep id, cell hash) which agents measured these cells; others are absent."""
    if not cells:
        return {}
    rows = session.execute(
        select(
            JobRow.sweep_id, JobRow.cell_hash, RankRow.agent_id, AgentRow.fingerprint, func.count()
        )
        .join(AttemptRow, AttemptRow.job_id == JobRow.id)
        .join(RankRow, RankRow.attempt_id == AttemptRow.id)
        .join(AgentRow, AgentRow.id == RankRow.agent_id)
        .where(
            JobRow.sweep_id.in_({sweep_id for sweep_id, _ in cells}),
            JobRow.cell_hash.in_({cell_hash for _, cell_hash in cells}),
            AttemptRow.state == AttemptState.SUCCEEDED,
        )
        .group_by(JobRow.sweep_id, JobRow.cell_hash, RankRow.agent_id, AgentRow.fingerprint)
    )
    found: dict[CellKey, CellServers] = {}
    for sweep_id, cell_hash, agent_id, fingerprint, count in rows:
        servers = found.setdefault((sweep_id, cell_hash), CellServers())
        servers.run_counts[agent_id] = count
        servers.fingerprints.add(fingerprint)
    return found


def _next_specs(jobs: Sequence[Any], precision: Precision, timeline: Timeline) -> list[JobSpec]:
    """Return the repetitions that come after the jobs of a cell, which are in their order."""
    count = next_repetitions([repetition_of(job) for job in jobs], precision, timeline)
    if count == 0:
        return []
    last = jobs[-1]
    try:
        spec = from_json(JobSpec, last.spec)
        # Cells of two cases that differ in nothing but their seeds are one: no seed comes twice.
        seed = max(from_json(JobSpec, job.spec).seed for job in jobs)
        return [
            dataclasses.replace(spec, repetition=last.repetition + i, seed=seed + i)
            for i in range(1, count + 1)
        ]
    except InvalidSpec:
        return []  # another version wrote it, and what is there has to do


def _repetitions(which: ColumnElement[bool]) -> Select[Any]:
    """Columns and no entities: those that are loaded already are older than the lock."""
    return (
        select(
            JobRow.id,
            JobRow.sweep_id,
            JobRow.spec,
            JobRow.cell_hash,
            JobRow.repetition,
            JobRow.priority,
            JobRow.state,
            JobRow.failure_kind,
            JobRow.cancel_requested,
            MeasurementRow.id.label("measurement_id"),
            MeasurementRow.status,
            MEASUREMENTS.step_time_s,
            MeasurementRow.fingerprint,
            MeasurementRow.flags,
        )
        .outerjoin(MeasurementRow, MeasurementRow.job_id == JobRow.id)
        .where(which)
        .order_by(JobRow.repetition, JobRow.id)
    )


def repetition_of(row: Any) -> Repetition:
    is_measured = _is_measured(row)
    return Repetition(
        job_id=row.id,
        state=_state(row),
        step_time_s=row.step_time_s if is_measured else None,
        fingerprint=row.fingerprint if is_measured else None,
        disturbance=disturbance_of(row.flags or ()) if is_measured else UNDISTURBED,
    )


def _is_measured(row: Any) -> bool:
    return row.state is JobState.SUCCEEDED and row.status == OK


def _state(row: Any) -> RepetitionState:
    if row.state is JobState.CANCELLED or row.cancel_requested:
        return RepetitionState.STOPPED
    if row.state is JobState.FAILED:
        is_its_own = row.failure_kind in _CONFIGURATION_FAILED
        return RepetitionState.STOPPED if is_its_own else RepetitionState.LOST
    return RepetitionState.MEASURED if row.state is JobState.SUCCEEDED else RepetitionState.PENDING
