"""Stores each report once, or sets it aside with a reason, and moves ranks on at barriers.

A row for each agent records how far its spool is stored; locking that row orders the agent's
batches.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import itertools
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from sqlalchemy import bindparam, case, select, tuple_, update
from sqlalchemy.orm import Session

from farm.configuration.spec import JobSpec
from farm.errors import InvalidSpec
from farm.gang.admission import LeasedAttempt, refusal_of_report
from farm.gang.lifecycle import RankPhase
from farm.messages.rank_limits import MOST_BODY_BYTES, RankLimits, excess, rank_limits
from farm.messages.reports import (
    REPORT_NAMES,
    REPORTS,
    LogPart,
    PeersMeasured,
    Prepared,
    RankEnded,
    RankStarted,
    Report,
    ReportBatch,
    ReportBody,
    Sample,
    Samples,
    Shaped,
    StepTimes,
)
from farm.messages.trainer_lines import Epoch, Failure, FailureKind
from farm.store.engine import POSTGRESQL
from farm.store.reports.late_reports import RefusedReport, SpoolKey, set_aside
from farm.store.reports.logs import insert_log_parts
from farm.store.series.samples import SampleSeries, insert_series
from farm.store.series.series import insert_chunks, insert_epochs
from farm.store.tables import AttemptRow, JobRow, RankRow, SpoolPosition
from farm.values.codec import from_json, to_json

logger = logging.getLogger(__name__)

# An attempt's ranks by number, all of them.
_RankRows: TypeAlias = Mapping[int, RankRow]

# The phase that a report proves, and the column that it is kept in.
_BARRIERS: dict[type, tuple[RankPhase, str]] = {
    Prepared: (RankPhase.PREPARED, "prepared"),
    PeersMeasured: (RankPhase.MEASURED, "peers"),
    Shaped: (RankPhase.SHAPED, "shaped"),
    RankStarted: (RankPhase.STARTED, "started"),
    RankEnded: (RankPhase.ENDED, "ended"),
}
_KINDS = frozenset(REPORT_NAMES[kind] for kind in _BARRIERS)
_REASON_CHARACTERS = 500
_ORDER = {phase: number for number, phase in enumerate(RankPhase)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What became of a batch. `confirmed`: the agent may forget everything up to it.

    `moves_attempts`: the last rank of a gang passed a barrier, or one has failed, so the scheduler
    has reason to look.
    `late`: how many came late, by token and rank; `job_ids`: of these tokens, where it is known.
    """

    confirmed: int
    admitted_count: int = 0
    late_count: int = 0
    moves_attempts: bool = False
    late: Mapping[tuple[int, int], int] = field(default_factory=dict)
    job_ids: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    """An attempt that reports speak of. `day`: the UTC date of its lease.

    `limits`: None where its job cannot be read, of which the scheduler makes nothing either.
    """

    job_id: int
    day: dt.date
    leased: LeasedAttempt
    limits: RankLimits | None


@dataclass(slots=True)
class _Series:
    """What several batches hold of series and logs, by token and rank or with them.

    A rank may have a thousand small reports in a batch, which are stored with a few statements.
    """

    samples: dict[tuple[int, int], list[Sample]] = field(default_factory=dict)
    steps: list[tuple[int, int, StepTimes]] = field(default_factory=list)
    epochs: list[tuple[int, int, Epoch]] = field(default_factory=list)
    logs: dict[tuple[int, int], list[LogPart]] = field(default_factory=dict)


_SERIES = frozenset({REPORT_NAMES[Samples], REPORT_NAMES[StepTimes]})
# A rank without one of these is no less a measurement.
_DISPENSABLE = frozenset({REPORT_NAMES[Samples], REPORT_NAMES[LogPart]})

# The time since an attempt was leased, from its token and what the wall clock says.
ElapsedTime = Callable[[int, float], float]

# Every message passes through these statements, so they are built once. Those of positions work on
# columns: loading and flushing objects was a third of the cost of a small message.
_CONFIRMED = (
    select(SpoolPosition.agent_id, SpoolPosition.generation, SpoolPosition.confirmed_number)
    .where(
        tuple_(SpoolPosition.agent_id, SpoolPosition.generation).in_(
            bindparam("spools", expanding=True)
        )
    )
    .order_by(SpoolPosition.agent_id, SpoolPosition.generation)
    .with_for_update()
)
_CONFIRM = (
    update(SpoolPosition)
    .where(
        SpoolPosition.agent_id == bindparam("agent"), SpoolPosition.generation == bindparam("spool")
    )
    .values(confirmed_number=bindparam("number"), updated_at=bindparam("now"))
)
_CONFIRM_ARRAYS = f"""
    UPDATE {SpoolPosition.__tablename__} AS p
    SET confirmed_number = r.number, updated_at = %s
    FROM unnest(%s::text[], %s::text[], %s::bigint[]) AS r (agent_id, generation, number)
    WHERE p.agent_id = r.agent_id AND p.generation = r.generation
"""  # noqa: S608 (a name of our own)
_TARGETS = (
    select(
        AttemptRow.id,
        AttemptRow.job_id,
        AttemptRow.state,
        AttemptRow.leased_at,
        AttemptRow.state_since,
        JobRow.attempt_id,
        # In one row of the gang, since it is as long as all the others together.
        case((RankRow.rank == 0, JobRow.spec)).label("spec"),
        RankRow.rank,
        RankRow.agent_id,
    )
    .join(JobRow, JobRow.id == AttemptRow.job_id)
    .join(RankRow, RankRow.attempt_id == AttemptRow.id)
    .where(AttemptRow.id.in_(bindparam("tokens", expanding=True)))
    .order_by(AttemptRow.id)
    .with_for_update(of=AttemptRow)
)


def time_by_wall(token: int, by_wall_s: float) -> float:
    return by_wall_s


def store_batches(
    session: Session,
    batches: Sequence[ReportBatch],
    *,
    now: dt.datetime,
    elapsed: ElapsedTime = time_by_wall,
) -> list[Stored]:
    """Store the new reports in batches; return for each how far its agent's spool is stored.

    The caller owns the transaction, and confirms to the agents only after its commit. Reports are
    numbered without gaps: what was stored before is passed over, and nothing is taken across a
    gap within a batch, so that one number says everything. An agent forgets only what was
    confirmed, so a batch that begins later than expected follows what this store has lost, by a
    restored backup or a loss of power. It goes on from there, or it never would again.

    All positions are locked first, and then all attempts, each in the order of their keys, so
    that two collectors never wait for each other.

    What is more than a rank can have, or beyond its quantity's range, is refused and confirmed: it
    would block its spool. If nothing can be measured without it, the rank has failed.
    """
    confirmed = _lock_positions(session, batches, now=now)
    fresh = [_fresh(batch, confirmed) for batch in batches]
    _write_positions(session, confirmed, now=now)
    tokens = {report.token for reports in fresh for report in reports}
    targets = _targets(session, tokens, now=now, elapsed=elapsed)
    gangs = _gangs_at_barriers(session, itertools.chain.from_iterable(fresh))
    series = _Series()
    results = [
        _store_fresh(session, batch, reports, targets=targets, gangs=gangs, series=series, now=now)
        for batch, reports in zip(batches, fresh, strict=True)
    ]
    insert_series(
        session,
        [
            SampleSeries(day=targets[token].day, token=token, rank=rank, samples=rows)
            for (token, rank), rows in series.samples.items()
        ],
    )
    insert_chunks(session, series.steps)
    insert_epochs(session, series.epochs)
    for (token, rank), parts in series.logs.items():
        insert_log_parts(session, token=token, rank=rank, parts=parts)
    return [
        dataclasses.replace(result, confirmed=confirmed[batch.agent_id, batch.generation])
        for batch, result in zip(batches, results, strict=True)
    ]


def _lock_positions(
    session: Session, batches: Sequence[ReportBatch], *, now: dt.datetime
) -> dict[SpoolKey, int]:
    """Lock the spools' positions, always in the same order, and return how far each is stored.

    One that is not known here begins with the first batch of it.
    """
    first: dict[SpoolKey, int] = {}
    for batch in batches:
        first.setdefault((batch.agent_id, batch.generation), batch.reports[0].number)
    rows = session.execute(_CONFIRMED, {"spools": list(first)})
    confirmed = {(agent_id, generation): number for agent_id, generation, number in rows}
    # In order as well, since two collectors may meet here.
    for (agent_id, generation), number in sorted(first.items()):
        if (agent_id, generation) not in confirmed:
            confirmed[agent_id, generation] = number - 1
            position = SpoolPosition(
                agent_id=agent_id,
                generation=generation,
                confirmed_number=number - 1,
                updated_at=now,
            )
            session.add(position)
    # The second of the two fails on the key, and its messages come again.
    session.flush()
    return confirmed


def _write_positions(
    session: Session, confirmed: Mapping[SpoolKey, int], *, now: dt.datetime
) -> None:
    """Note how far these spools are stored."""
    rows = [(agent, spool, number) for (agent, spool), number in sorted(confirmed.items())]
    connection = session.connection()
    if connection.dialect.name == POSTGRESQL:
        agents, generations, numbers = map(list, zip(*rows, strict=True))
        connection.exec_driver_sql(_CONFIRM_ARRAYS, (now, agents, generations, numbers))
    else:
        named = [
            {"agent": agent, "spool": spool, "number": number, "now": now}
            for agent, spool, number in rows
        ]
        connection.execute(_CONFIRM, named)


def _fresh(batch: ReportBatch, confirmed: dict[SpoolKey, int]) -> list[Report]:
    """Return the batch's reports that are not stored yet, and count them as confirmed."""
    spool = (batch.agent_id, batch.generation)
    first, number = batch.reports[0].number, confirmed[spool]
    if first > number + 1:
        logger.error(
            "reports that were confirmed once are not in the store any more",
            extra={
                "agent_id": batch.agent_id,
                "first_missing": number + 1,
                "last_missing": first - 1,
            },
        )
        number = first - 1
    fresh = []
    for report in batch.reports:
        if report.number == number + 1:
            fresh.append(report)
            number += 1
    confirmed[spool] = number
    return fresh


def _store_fresh(
    session: Session,
    batch: ReportBatch,
    fresh: Sequence[Report],
    *,
    targets: Mapping[int, _Target],
    gangs: Mapping[int, _RankRows],
    series: _Series,
    now: dt.datetime,
) -> Stored:
    """Store a batch's reports but for its series, which are added to those of all."""
    late: Counter[tuple[int, int]] = Counter()
    refused: list[RefusedReport] = []
    moves = False
    for report in fresh:
        body = None
        target = targets.get(report.token)
        reason = refusal_of_report(
            target.leased if target else None,
            agent_id=batch.agent_id,
            token=report.token,
            rank=report.rank,
        )
        if reason is None and target is not None:
            try:
                body = _read(report)
                reason = None if target.limits is None else excess(body, target.limits)
            except InvalidSpec as error:
                reason = str(error)
            if reason is not None and report.kind in REPORTS and report.kind not in _DISPENSABLE:
                _fail_rank(session, report.token, report.rank, reason=reason, now=now)
                moves = True
        if reason is not None:
            refused.append(_refused(batch, report, reason=reason))
            late[report.token, report.rank] += 1
        elif isinstance(body, Samples):
            series.samples.setdefault((report.token, report.rank), []).extend(body.samples)
        elif isinstance(body, StepTimes):
            series.steps.append((report.token, report.rank, body))
        elif isinstance(body, Epoch):
            series.epochs.append((report.token, report.rank, body))
        elif isinstance(body, LogPart):
            series.logs.setdefault((report.token, report.rank), []).append(body)
        elif body is not None:
            moves = _pass_barrier(gangs[report.token], report, body, now=now) or moves
    set_aside(session, refused, now=now)
    return Stored(
        confirmed=0,
        admitted_count=len(fresh) - late.total(),
        late_count=late.total(),
        moves_attempts=moves,
        late=late,
        job_ids={token: targets[token].job_id for token, _ in late if token in targets},
    )


def _read(report: Report) -> ReportBody:
    """Return what a report says.

    Raises:
        InvalidSpec: a body that does not fit its kind, or is too long.
    """
    body = report.decoded()
    if report.kind not in _SERIES:  # these are measured in rows
        size = len(json.dumps(report.body))
        if size > MOST_BODY_BYTES:
            raise InvalidSpec(report.kind, f"{size} bytes", f"at most {MOST_BODY_BYTES} of them")
    return body


def _targets(
    session: Session, tokens: Iterable[int], *, now: dt.datetime, elapsed: ElapsedTime
) -> dict[int, _Target]:
    """Look up and lock the attempts that reports speak of, so that none ends halfway through."""
    rows = session.execute(_TARGETS, {"tokens": sorted(tokens)})
    targets: dict[int, _Target] = {}
    for token, members in itertools.groupby(rows, key=lambda row: row.id):
        gang = list(members)
        _, job_id, state, leased_at, state_since, current, *_ = gang[0]
        # What the store saw begin later than now was seen before the clock was set back.
        by_wall_s = (max(now, state_since) - leased_at).total_seconds()
        specs = [row.spec for row in gang if row.spec is not None]
        targets[token] = _Target(
            limits=_limits(specs, elapsed_s=elapsed(token, by_wall_s)),
            job_id=job_id,
            day=leased_at.date(),
            leased=LeasedAttempt(
                state=state,
                is_current=current == token,
                agents={row.rank: row.agent_id for row in gang},
            ),
        )
    return targets


def _limits(specs: Sequence[object], *, elapsed_s: float) -> RankLimits | None:
    try:
        spec = from_json(JobSpec, specs[0] if specs else None)
    except InvalidSpec:
        return None
    return rank_limits(spec, elapsed_s=elapsed_s)


def _refused(batch: ReportBatch, report: Report, *, reason: str) -> RefusedReport:
    try:
        body = from_json(dict[str, object], report.body, where="body")
    except InvalidSpec:
        body = {}  # no database would take it; the reason says what was wrong with it
    return RefusedReport(
        agent_id=batch.agent_id,
        generation=batch.generation,
        number=report.number,
        token=report.token,
        rank=report.rank,
        kind=report.kind,
        body=body,
        reason=reason,
    )


def _gangs_at_barriers(session: Session, reports: Iterable[Report]) -> dict[int, _RankRows]:
    """Read the gangs of which some rank has passed a barrier, by token, with one query.

    The caller has locked their attempts: what other collectors have stored of them is seen.
    """
    gangs: dict[int, dict[int, RankRow]] = {r.token: {} for r in reports if r.kind in _KINDS}
    if gangs:
        for rank in session.scalars(select(RankRow).where(RankRow.attempt_id.in_(gangs))):
            gangs[rank.attempt_id][rank.rank] = rank
    return {**gangs}


def _fail_rank(session: Session, token: int, rank: int, *, reason: str, now: dt.datetime) -> None:
    """End a rank that has reported what cannot be: nothing can be measured of its attempt.

    The caller has locked the attempt.
    """
    row = session.get_one(RankRow, (token, rank))
    if row.ended is not None:
        return
    failure = Failure(kind=FailureKind.SENSELESS, message=reason[:_REASON_CHARACTERS])
    ended = RankEnded(result=None, failure=failure, timed_begun_s=None, log_tail="")
    fields = to_json(ended)
    assert isinstance(fields, dict)
    row.ended, row.ended_at = fields, now
    row.phase, row.commanded_at = RankPhase.ENDED, None


def _pass_barrier(gang: _RankRows, report: Report, body: ReportBody, *, now: dt.datetime) -> bool:
    """Note what a rank has reached; whether there is now something to decide.

    While a rank of the gang is behind there is nothing. So the scheduler is not woken for each: the
    round for the last rank would have to wait until the round before it is over.
    """
    rank = gang[report.rank]
    phase, column = _BARRIERS[type(body)]
    if getattr(rank, column) is None:
        setattr(rank, column, to_json(body))
        # A repeated or late report never moves it back.
        if _ORDER[phase] > _ORDER[rank.phase]:
            rank.phase, rank.commanded_at = phase, None
        if phase is RankPhase.ENDED:
            rank.ended_at = now
        if isinstance(body, PeersMeasured):
            rank.control_s = body.control_s
    if isinstance(body, RankEnded) and body.failure is not None:
        return True
    return all(_ORDER[other.phase] >= _ORDER[phase] for other in gang.values())
