"""Reads a sweep's jobs, attempts, agents, steps and logs as rows for the files of its bundle."""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import InstrumentedAttribute, Session

from farm.messages.agents import Hardware
from farm.store.base import Table
from farm.store.result_tables import EpochRow, LogPartRow, StepChunk
from farm.store.series.series import unpacked
from farm.store.tables import AttemptRow, JobRow, RankRow
from farm.values.codec import canonical_json, from_stored

_ROWS_A_PART = 1000
_STORED_A_PART = 200  # a log's part has some ten thousand characters
_Columns = Mapping[str, InstrumentedAttribute[Any]]
# By what files call them.
JOBS: _Columns = {
    "job_id": JobRow.id,
    "cell": JobRow.cell_hash,
    "repetition": JobRow.repetition,
    "state": JobRow.state,
    "failure_kind": JobRow.failure_kind,
    "reason": JobRow.reason,
    "created_at": JobRow.created_at,
    "finished_at": JobRow.finished_at,
    "specification": JobRow.spec,
}
ATTEMPTS: _Columns = {
    "attempt_id": AttemptRow.id,
    "job_id": AttemptRow.job_id,
    "number": AttemptRow.number,
    "state": AttemptRow.state,
    "failure_kind": AttemptRow.failure_kind,
    "reason": AttemptRow.reason,
    "leased_at": AttemptRow.leased_at,
    "started_at": AttemptRow.started_at,
    "ended_at": AttemptRow.ended_at,
}
_OF_ATTEMPTS = sa.select().join_from(AttemptRow, JobRow, JobRow.id == AttemptRow.job_id)
AGENTS = "agents"  # of an attempt, that of rank 0 first
_OF_RANK = ("job_id", "attempt_id", "rank")
EPOCHS = (
    *(*_OF_RANK, "epoch", "train_s", "step_count"),
    *("train_loss", "val_loss", "val_accuracy_ratio"),
)
_OF_PROCESS = (*_OF_RANK, "process")
STEPS = (*_OF_PROCESS, "step", "kind", "begun_s", "step_time_s")
LOGS = (*_OF_RANK, "first_character", "text")


def job_parts(session: Session, sweep_id: int) -> Iterator[list[dict[str, object]]]:
    """Yield a sweep's jobs as rows of JOBS, by id; instants as in ISO 8601, the rest as JSON."""
    return _parts(session, JOBS, sa.select(), JobRow.id, sweep_id)


def attempt_parts(session: Session, sweep_id: int) -> Iterator[list[dict[str, object]]]:
    """Yield all attempts of a sweep's jobs as rows of ATTEMPTS and AGENTS, by id."""
    for rows in _parts(session, ATTEMPTS, _OF_ATTEMPTS, AttemptRow.id, sweep_id):
        agents: dict[object, list[str]] = {row["attempt_id"]: [] for row in rows}
        members = sa.select(RankRow.attempt_id, RankRow.agent_id).where(
            RankRow.attempt_id.in_(agents)
        )
        for token, agent_id in session.execute(members.order_by(RankRow.attempt_id, RankRow.rank)):
            agents[token].append(agent_id)
        yield [{**row, AGENTS: canonical_json(agents[row["attempt_id"]])} for row in rows]


def epoch_parts(session: Session, sweep_id: int) -> Iterator[list[dict[str, object]]]:
    """Yield the passes over the training set of all attempts, as rows of EPOCHS."""
    for rows in _rank_parts(session, EpochRow, ("epoch",), sweep_id):
        yield [{name: getattr(row, name) for name in EPOCHS} for row in rows]


def step_parts(session: Session, sweep_id: int) -> Iterator[list[dict[str, object]]]:
    """Yield every step of all attempts, as rows of STEPS.

    `begun_s`: seconds after go; exact of the first step of what was reported together.
    """
    for chunks in _rank_parts(session, StepChunk, ("process", "first_step"), sweep_id):
        rows: list[dict[str, object]] = []
        for chunk in chunks:
            known = {name: getattr(chunk, name) for name in _OF_PROCESS}
            found = unpacked(chunk)
            begun_s = found.begun_s
            for step, time_s in enumerate(found.times_s, start=found.first_step):
                values = (step, found.kind.value, begun_s, time_s)
                rows.append({**known, **dict(zip(STEPS[len(_OF_PROCESS) :], values, strict=True))})
                begun_s += time_s
        yield rows


def log_parts(session: Session, sweep_id: int) -> Iterator[list[dict[str, object]]]:
    """Yield the output of all attempts' trainers, in pieces, as rows of LOGS."""
    for rows in _rank_parts(session, LogPartRow, ("first_character",), sweep_id):
        yield [{name: getattr(row, name) for name in LOGS} for row in rows]


def hardware_of(session: Session, sweep_id: int) -> list[dict[str, object]]:
    """Return the hardware of a sweep's agents, each combination once.

    `fingerprint` None: what is stored is not read any more.
    """
    written = sa.cast(RankRow.hardware, sa.Text)
    kinds = (
        sa.select(
            sa.func.min(RankRow.attempt_id).label("attempt_id"), RankRow.agent_id.label("agent_id")
        )
        .join(AttemptRow, AttemptRow.id == RankRow.attempt_id)
        .join(JobRow, JobRow.id == AttemptRow.job_id)
        .where(JobRow.sweep_id == sweep_id)
        .group_by(RankRow.agent_id, written)
        .subquery()
    )
    is_first = sa.and_(
        RankRow.attempt_id == kinds.c.attempt_id, RankRow.agent_id == kinds.c.agent_id
    )
    rows = session.execute(
        sa.select(RankRow.agent_id, RankRow.hardware)
        .join(kinds, is_first)
        .order_by(RankRow.agent_id, RankRow.attempt_id)
    ).all()
    found = []
    for agent_id, hardware in rows:
        known = from_stored(Hardware, hardware)
        fingerprint = None if known is None else known.fingerprint
        found.append({"agent_id": agent_id, "fingerprint": fingerprint, "hardware": hardware})
    return found


def _parts(
    session: Session, columns: _Columns, query: Any, key: Any, sweep_id: int
) -> Iterator[list[dict[str, object]]]:
    last_id = 0
    while True:
        rows: Sequence[Any] = session.execute(
            query.add_columns(key, *columns.values())
            .where(JobRow.sweep_id == sweep_id, key > last_id)
            .order_by(key)
            .limit(_ROWS_A_PART)
        ).all()
        if not rows:
            return
        yield [dict(zip(columns, map(_written, row[1:]), strict=True)) for row in rows]
        last_id = rows[-1][0]


def _rank_parts(
    session: Session, table: type[Table], place: Sequence[str], sweep_id: int
) -> Iterator[Sequence[Any]]:
    """Yield rows of a table with the job of each, by attempt, rank and place."""
    columns = table.__table__.c
    key = [columns[name] for name in ("rank", *place)]
    for attempts in _parts(session, ATTEMPTS, _OF_ATTEMPTS, AttemptRow.id, sweep_id):
        for attempt in attempts:
            query = (
                sa.select(sa.literal(attempt["job_id"]).label("job_id"), *columns)
                .where(columns["attempt_id"] == attempt["attempt_id"])
                .order_by(*key)
                .limit(_STORED_A_PART)
            )
            behind = query
            while rows := session.execute(behind).all():
                yield rows
                behind = query.where(
                    sa.tuple_(*key) > tuple(getattr(rows[-1], c.name) for c in key)
                )


def _written(value: object) -> object:
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, dt.datetime):
        return value.isoformat()
    return canonical_json(value) if isinstance(value, dict) else value
