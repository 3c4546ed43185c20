"""Sweeps in the store, with all their jobs: insert, look up, summarise, pause and resume."""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, and_, case, exists, func, insert, literal, not_, select
from sqlalchemy.orm import Session

from farm.configuration.axes import REQUIRED_AXES
from farm.configuration.spec import JobSpec
from farm.configuration.sweep import BUDGET, Precision, parse_precision
from farm.errors import InvalidSpec, InvalidTransition, NotFound
from farm.gang.lifecycle import FINAL_JOB_STATES, UNFINISHED_JOB_STATES, JobState, SweepState
from farm.store.base import Utc
from farm.store.sweeps.budgets import IS_HELD, spent_machine_s
from farm.store.tables import JobEvent, JobRow, SweepRow
from farm.text.display import machine_hours
from farm.values.codec import to_json
from farm.values.fields import canonical

_LONGEST_ID = 18  # digits; a longer number is no id of 64 bits


class SweepStatus(enum.Enum):
    """A sweep in one word for people: its state, or why it is held before it is finished."""

    RUNNING = "running"
    WAITING = "waiting"
    PAUSED = "paused"
    OVER_BUDGET = "over_budget"
    FINISHED = "finished"

    @property
    def text(self) -> str:
        """It as people read it."""
        return self.value.replace("_", " ")


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSummary:
    """A sweep and how far it is. `counts` has every job state, those without a job too.

    `max_job_count`: with all the repetitions that may still be added until its cells are precise.
    """

    sweep_id: int
    name: str
    created_at: dt.datetime
    skipped_count: int
    counts: Mapping[JobState, int]
    max_job_count: int
    is_paused: bool = False
    budget_machine_s: float | None = None
    is_budget_used_up: bool = False

    @property
    def is_held(self) -> bool:
        """Whether no further job of it is started."""
        return self.is_paused or self.is_budget_used_up

    @property
    def job_count(self) -> int:
        return sum(self.counts.values())

    @property
    def jobs_by_state(self) -> dict[str, int]:
        """The number of jobs in each state, for JSON."""
        return {state.value: self.counts[state] for state in JobState}

    @property
    def final_count(self) -> int:
        return sum(self.counts[state] for state in FINAL_JOB_STATES)

    @property
    def state(self) -> SweepState:
        """The state from its jobs: finished when all are, running when any is beyond waiting."""
        if self.final_count == self.job_count:
            return SweepState.FINISHED
        untouched = self.counts[JobState.WAITING] == self.job_count
        return SweepState.WAITING if untouched else SweepState.RUNNING

    @property
    def status(self) -> SweepStatus:
        """Its state in one word, for people."""
        if not self.is_held or self.state is SweepState.FINISHED:
            return SweepStatus(self.state.value)
        return SweepStatus.PAUSED if self.is_paused else SweepStatus.OVER_BUDGET

    def to_json(self) -> dict[str, Any]:
        """Return its JSON form, except instants."""
        return {
            "id": self.sweep_id,
            "name": self.name,
            "state": self.state.value,
            "is_paused": self.is_paused,
            "budget_machine_s": self.budget_machine_s,
            "is_budget_used_up": self.is_budget_used_up,
            "created_at": self.created_at,
            "job_count": self.job_count,
            "max_job_count": self.max_job_count,
            "finished_count": self.final_count,
            "skipped_count": self.skipped_count,
            "jobs_by_state": self.jobs_by_state,
        }


def insert_sweep(
    session: Session,
    *,
    name: str,
    spec: Mapping[str, object],
    jobs: Sequence[JobSpec],
    skipped: Sequence[str],
    priority: int,
    now: dt.datetime,
    budget_machine_s: float | None = None,
) -> int:
    """Store a sweep, its jobs, which wait from now on, and return its id.

    `spec` is the sweep as it was submitted, `skipped` a line for each impossible cell left out.
    Job ids grow in the order of `jobs`. The caller owns the transaction.
    """
    sweep = SweepRow(
        name=name,
        spec=dict(spec),
        skipped=list(skipped),
        budget_machine_s=budget_machine_s,
        created_at=now,
    )
    session.add(sweep)
    session.flush()
    add_jobs(session, sweep.id, jobs, priority=priority, now=now)
    return sweep.id


def add_jobs(
    session: Session, sweep_id: int, jobs: Sequence[JobSpec], *, priority: int, now: dt.datetime
) -> None:
    """Add waiting jobs to a sweep that nobody else adds to meanwhile, in this order."""
    if not jobs:
        return
    last_id = session.scalar(select(func.max(JobRow.id)).where(JobRow.sweep_id == sweep_id)) or 0
    rows = [_job_row(sweep_id, job, priority=priority, now=now) for job in jobs]
    session.execute(insert(JobRow), rows)
    event = JobState.WAITING.value
    session.execute(
        insert(JobEvent).from_select(
            ["job_id", "at", "event"],
            select(JobRow.id, literal(now, Utc), literal(f"job: {event}")).where(
                JobRow.sweep_id == sweep_id, JobRow.id > last_id
            ),
        )
    )


def find_sweep(session: Session, id_or_name: str) -> SweepRow:
    """Return the sweep with that id or, if there is none, the newest one of that name.

    Raises:
        NotFound: there is neither.
    """
    if id_or_name.isascii() and id_or_name.isdecimal() and len(id_or_name) <= _LONGEST_ID:
        sweep = session.get(SweepRow, int(id_or_name))
        if sweep is not None:
            return sweep
    named = (
        select(SweepRow).where(SweepRow.name == id_or_name).order_by(SweepRow.id.desc()).limit(1)
    )
    sweep = session.scalar(named)
    if sweep is None:
        raise NotFound(f"sweep {id_or_name!r} does not exist; `farm status` lists them")
    return sweep


def sweep_of_id(session: Session, sweep_id: int, *, for_update: bool = False) -> SweepRow:
    """Return the sweep with that id, locked and read again if it will be changed.

    The name of another may be the same number.

    Raises:
        NotFound: there is no such sweep.
    """
    sweep = session.get(
        SweepRow, sweep_id, with_for_update=for_update, populate_existing=for_update
    )
    if sweep is None:
        raise NotFound(f"sweep {sweep_id} does not exist; `farm status` lists them")
    return sweep


def list_sweeps(
    session: Session,
    *,
    before_id: int | None = None,
    limit: int = 100,
    status: SweepStatus | None = None,
) -> list[SweepSummary]:
    """Return sweeps with their counts, the newest first; `before_id` goes on from a page's last."""
    query = select(SweepRow).order_by(SweepRow.id.desc()).limit(limit)
    if status is not None:
        query = query.where(_has_status(status))
    if before_id is not None:
        query = query.where(SweepRow.id < before_id)
    return _summaries(session, session.scalars(query).all())


def sweep_summary(session: Session, sweep_id: int) -> SweepSummary:
    """Return one sweep with its counts.

    Raises:
        NotFound: there is no such sweep.
    """
    return _summaries(session, [sweep_of_id(session, sweep_id)])[0]


def pause_sweep(session: Session, sweep_id: int) -> bool:
    """Start no further job of a sweep; return False if it was paused already.

    Raises:
        NotFound: there is no such sweep.
    """
    sweep = sweep_of_id(session, sweep_id, for_update=True)
    has_changed = not sweep.is_paused
    sweep.is_paused = True
    session.flush()
    return has_changed


def resume_sweep(
    session: Session, sweep_id: int, *, budget_machine_s: float | None, now: dt.datetime
) -> bool:
    """Start the jobs of a sweep again, within a new budget if one is given.

    Returns False where nothing held it and the budget is the same.

    Raises:
        NotFound: there is no such sweep.
        InvalidTransition: the budget is used up and no other is given, or the new one is no more
            than what is spent.
    """
    sweep = sweep_of_id(session, sweep_id, for_update=True)
    before = sweep.is_paused, sweep.budget_machine_s, sweep.budget_used_up_at
    if budget_machine_s is not None:
        spent_s = spent_machine_s(session, [sweep_id], now=now)[sweep_id]
        if budget_machine_s <= spent_s:
            raise InvalidTransition(
                f"sweep {sweep_id}: expected a {BUDGET} above what is spent, "
                f"{machine_hours(spent_s)}, got {canonical(budget_machine_s / 3600):g}"
            )
        sweep.budget_machine_s, sweep.budget_used_up_at = budget_machine_s, None
    if sweep.budget_used_up_at is not None:
        raise InvalidTransition(
            f"sweep {sweep_id}: its budget of {machine_hours(sweep.budget_machine_s)} is used up: "
            f"resume it with a larger {BUDGET}"
        )
    sweep.is_paused = False
    session.flush()
    return before != (sweep.is_paused, sweep.budget_machine_s, sweep.budget_used_up_at)


def _has_status(status: SweepStatus) -> ColumnElement[bool]:
    """Tell in the database which sweeps have a status, as `SweepSummary.status` does here."""
    # From the jobs that are not over, of which there are few: sweeps that are finished may have
    # many thousand jobs each.
    is_unfinished = SweepRow.id.in_(
        select(JobRow.sweep_id).where(JobRow.state.in_(UNFINISHED_JOB_STATES))
    )
    is_begun = exists().where(JobRow.sweep_id == SweepRow.id, JobRow.state != JobState.WAITING)
    match status:
        case SweepStatus.FINISHED:
            return not_(is_unfinished)
        case SweepStatus.PAUSED:
            return and_(is_unfinished, SweepRow.is_paused)
        case SweepStatus.OVER_BUDGET:
            return and_(is_unfinished, IS_HELD, not_(SweepRow.is_paused))
        case SweepStatus.WAITING:
            return and_(is_unfinished, not_(IS_HELD), not_(is_begun))
        case SweepStatus.RUNNING:
            return and_(is_unfinished, not_(IS_HELD), is_begun)


def _job_row(sweep_id: int, spec: JobSpec, *, priority: int, now: dt.datetime) -> dict[str, object]:
    return {
        "sweep_id": sweep_id,
        "spec": to_json(spec),
        "cell_hash": spec.cell_hash,
        **{axis.field: getattr(spec, axis.field) for axis in REQUIRED_AXES},
        "agent_count": spec.agent_count,
        "requires": sorted(spec.required_capabilities),
        "repetition": spec.repetition,
        "priority": priority,
        "state": JobState.WAITING,
        "due_at": now,
        "created_at": now,
    }


def _summaries(session: Session, sweeps: Iterable[SweepRow]) -> list[SweepSummary]:
    listed = list(sweeps)
    counts = {sweep.id: dict.fromkeys(JobState, 0) for sweep in listed}
    rows = session.execute(
        select(JobRow.sweep_id, JobRow.state, func.count())
        .where(JobRow.sweep_id.in_(counts))
        .group_by(JobRow.sweep_id, JobRow.state)
    )
    for sweep_id, state, count in rows:
        counts[sweep_id][state] = count
    to_come = _to_come(session, listed)
    return [
        SweepSummary(
            sweep_id=sweep.id,
            name=sweep.name,
            created_at=sweep.created_at,
            skipped_count=len(sweep.skipped),
            counts=counts[sweep.id],
            max_job_count=sum(counts[sweep.id].values()) + to_come.get(sweep.id, 0),
            is_paused=sweep.is_paused,
            budget_machine_s=sweep.budget_machine_s,
            is_budget_used_up=sweep.budget_used_up_at is not None,
        )
        for sweep in listed
    ]


def _to_come(session: Session, sweeps: Iterable[SweepRow]) -> dict[int, int]:
    """Return how many jobs each sweep may still get: up to the cap for every undecided cell."""
    caps = {
        sweep.id: precision.max_repetitions
        for sweep in sweeps
        if (precision := stored_precision(sweep)) is not None
    }
    to_come = dict.fromkeys(caps, 0)
    if caps:
        is_final = JobRow.state.in_(FINAL_JOB_STATES)
        cells = session.execute(
            select(JobRow.sweep_id, func.count())
            .where(JobRow.sweep_id.in_(caps))
            .group_by(JobRow.sweep_id, JobRow.cell_hash)
            .having(func.count() > func.sum(case((is_final, 1), else_=0)))
        )
        for sweep_id, count in cells:
            to_come[sweep_id] += max(0, caps[sweep_id] - count)
    return to_come


def stored_precision(sweep: SweepRow) -> Precision | None:
    """Return how precise the cells of a stored sweep are to be; None: as they are."""
    try:
        return parse_precision(sweep.spec)
    except InvalidSpec:
        return None  # another version wrote it, and its repetitions are as many as there are
