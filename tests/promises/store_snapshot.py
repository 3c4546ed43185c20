"""Reads a store as the plain values that `tests.promises.invariants` judges."""

from __future__ import annotations

import datetime as dt
import itertools
import json
from collections.abc import Iterator, Mapping

from sqlalchemy import select
from sqlalchemy.orm import Session

from farm.messages.reports import Report
from farm.store.result_tables import EpochRow, LogPartRow, MeasurementRow, SampleRow, StepChunk
from farm.store.tables import AgentRow, AttemptRow, JobRow, LateReport, RankRow
from tests.promises.protocol_values import (
    AgentValue,
    AttemptValue,
    JobValue,
    MeasurementValue,
    RankValue,
    Spooled,
    StoreValue,
)

# The reports that are kept whole in a rank's row, by their names and the columns that have these.
_REPORT_KINDS = ("prepared", "peers", "shaped", "started", "ended")
# What tells the others of one rank apart.
_KEYS = {"steps": "first_step", "epoch": "epoch", "log": "first_character"}


def store_value(session: Session, *, now: dt.datetime) -> StoreValue:
    """Return all that is promised something about. `now`: the instant that leases are judged at."""
    jobs = session.execute(
        select(
            JobRow.id, JobRow.state, JobRow.attempt_id, JobRow.agent_count, JobRow.finished_at
        ).order_by(JobRow.id)
    )
    attempts = session.execute(
        select(AttemptRow.id, AttemptRow.job_id, AttemptRow.number, AttemptRow.state).order_by(
            AttemptRow.id
        )
    )
    ranks = session.execute(
        select(
            RankRow.attempt_id,
            RankRow.rank,
            RankRow.agent_id,
            RankRow.phase,
            *(getattr(RankRow, column).is_not(None) for column in _REPORT_KINDS),
        ).order_by(RankRow.attempt_id, RankRow.rank)
    )
    agents = session.execute(
        select(
            AgentRow.id, AgentRow.attempt_id, AgentRow.lease_expires_at, AgentRow.unclean_token
        ).order_by(AgentRow.id)
    )
    measurements = session.execute(
        select(
            MeasurementRow.id,
            MeasurementRow.job_id,
            MeasurementRow.attempt_id,
            MeasurementRow.status,
        )
        .where(MeasurementRow.job_id.is_not(None))
        .order_by(MeasurementRow.id)
    )
    return StoreValue(
        jobs=tuple(
            JobValue(
                id=job_id,
                state=state,
                attempt_id=attempt_id,
                agent_count=agent_count,
                is_finished=finished_at is not None,
            )
            for job_id, state, attempt_id, agent_count, finished_at in jobs
        ),
        attempts=tuple(
            AttemptValue(id=token, job_id=job_id, number=number, state=state)
            for token, job_id, number, state in attempts
        ),
        ranks=tuple(
            RankValue(
                attempt_id=token,
                rank=rank,
                agent_id=agent_id,
                phase=phase,
                reported=tuple(itertools.compress(_REPORT_KINDS, is_told)),
            )
            for token, rank, agent_id, phase, *is_told in ranks
        ),
        agents=tuple(
            AgentValue(
                id=agent_id,
                attempt_id=token,
                lease_s=None if expires_at is None else (expires_at - now).total_seconds(),
                unclean_token=unclean,
            )
            for agent_id, token, expires_at, unclean in agents
        ),
        measurements=tuple(
            MeasurementValue(id=row_id, job_id=job_id or 0, attempt_id=token, status=status)
            for row_id, job_id, token, status in measurements
        ),
    )


def spooled(agent_id: str, report: Report) -> list[Spooled]:
    """Return what a report says, as an agent's spool has it."""
    return list(_spooled_reports(agent_id, report.token, report.rank, report.kind, report.body))


def stored_reports(session: Session, *, but_of: str | None = None) -> list[Spooled]:
    """Return all that the store has of the agents' reports, counted or kept aside as late.

    What was refused because it made no sense is among them as far as its body was stored. `but_of`:
    an agent that lies, whose late reports are left out.
    """
    found: list[Spooled] = []
    agents: dict[tuple[int, int], str] = {}
    columns = [getattr(RankRow, column) for column in _REPORT_KINDS]
    for token, rank, agent_id, *bodies in session.execute(
        select(RankRow.attempt_id, RankRow.rank, RankRow.agent_id, *columns)
    ):
        agents[token, rank] = agent_id
        for kind, body in zip(_REPORT_KINDS, bodies, strict=True):
            if body is not None:
                found += _spooled_reports(agent_id, token, rank, kind, body)
    for kind, token_column, rank_column, key in (
        ("samples", SampleRow.attempt_id, SampleRow.rank, SampleRow.tick),
        ("steps", StepChunk.attempt_id, StepChunk.rank, StepChunk.first_step),
        ("epoch", EpochRow.attempt_id, EpochRow.rank, EpochRow.epoch),
        ("log", LogPartRow.attempt_id, LogPartRow.rank, LogPartRow.first_character),
    ):
        for token, rank, number in session.execute(select(token_column, rank_column, key)):
            found.append(_spooled(agents[token, rank], token, rank, kind, str(number)))
    late = session.execute(
        select(
            LateReport.agent_id, LateReport.token, LateReport.rank, LateReport.kind, LateReport.body
        )
    )
    for agent_id, token, rank, kind, body in late:
        if agent_id != but_of:
            found += _spooled_reports(agent_id, token, rank, kind, body)
    return found


def _spooled_reports(
    agent_id: str, token: int, rank: int, kind: str, body: Mapping[str, object]
) -> Iterator[Spooled]:
    if kind == "samples":
        samples = body["samples"]
        assert isinstance(samples, list)
        for sample in samples:
            yield _spooled(agent_id, token, rank, kind, str(sample["tick"]))
    else:
        content = body[_KEYS[kind]] if kind in _KEYS else json.dumps(body, sort_keys=True)
        yield _spooled(agent_id, token, rank, kind, str(content))


def _spooled(agent_id: str, token: int, rank: int, kind: str, content: str) -> Spooled:
    return Spooled(agent_id=agent_id, token=token, rank=rank, kind=kind, content=content)
