"""Idempotent collection: each report counts once, or is kept aside with the reason why not."""

from __future__ import annotations

import dataclasses
import datetime as dt
import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, cast

from sqlalchemy import bindparam, select, update
from sqlalchemy.orm import Session

from farm.core.admission import LeasedAttempt, refusal_of_report
from farm.core.codec import from_json
from farm.core.lifecycle import RankPhase
from farm.core.reports import (
    REPORT_NAMES,
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
from farm.core.storable import storable
from farm.core.trainer_lines import Epoch
from farm.errors import InvalidSpec
from farm.store.attempts import reached
from farm.store.logs import insert_log_part
from farm.store.series import insert_epoch, insert_samples, insert_steps
from farm.store.tables import Attempt, Job, LateReport, Rank, SpoolPosition

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What became of a batch. `confirmed`: the agent may forget everything up to it.

    `moves_attempts`: a rank passed a barrier or ended, so the scheduler has reason to look.
    `late`: how many came late, by token and rank; `job_ids`: the job of each token that is known.
    """

    confirmed: int
    admitted_count: int = 0
    late_count: int = 0
    moves_attempts: bool = False
    late: Mapping[tuple[int, int], int] = field(default_factory=dict)
    job_ids: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    """An attempt that reports speak of. `day`: the UTC date of its lease."""

    job_id: int
    day: dt.date
    leased: LeasedAttempt


_SERIES = frozenset({REPORT_NAMES[Samples], REPORT_NAMES[StepTimes]})

# Report kinds that are kept whole in the rank's row: the phase they prove, and the column.
_BARRIERS: dict[type, tuple[RankPhase, str]] = {
    Prepared: (RankPhase.PREPARED, "prepared"),
    PeersMeasured: (RankPhase.MEASURED, "peers"),
    Shaped: (RankPhase.SHAPED, "shaped"),
    RankStarted: (RankPhase.STARTED, "started"),
    RankEnded: (RankPhase.ENDED, "ended"),
}

# Every message passes through these three, so they are built once, and they work on columns:
# building them anew, and loading and flushing objects, was a third of the cost of a small message.
_CONFIRMED = (
    select(SpoolPosition.confirmed_number)
    .where(
        SpoolPosition.agent_id == bindparam("agent"), SpoolPosition.generation == bindparam("spool")
    )
    .with_for_update()
)
_CONFIRM = (
    update(SpoolPosition)
    .where(
        SpoolPosition.agent_id == bindparam("agent"), SpoolPosition.generation == bindparam("spool")
    )
    .values(confirmed_number=bindparam("number"), updated_at=bindparam("now"))
)
_TARGETS = (
    select(
        Attempt.id,
        Attempt.job_id,
        Attempt.state,
        Attempt.leased_at,
        Job.attempt_id,
        Rank.rank,
        Rank.agent_id,
    )
    .join(Job, Job.id == Attempt.job_id)
    .join(Rank, Rank.attempt_id == Attempt.id)
    .where(Attempt.id.in_(bindparam("tokens", expanding=True)))
    .order_by(Attempt.id)
    .with_for_update(of=Attempt)
)


def store_batch(session: Session, batch: ReportBatch, *, now: dt.datetime) -> Stored:
    """Store what is new in a batch and say how far the agent's spool is stored now.

    The caller owns the transaction, and confirms to the agent only after its commit. Reports are
    numbered without gaps: what was stored before is passed over, and nothing is taken across a
    gap within a batch, so that one number says everything. An agent forgets only what was
    confirmed, so a batch that begins later than expected follows what this store has lost, by a
    restored backup or a loss of power. It goes on from there, or it never would again.
    """
    if not batch.reports:
        raise InvalidSpec("reports", [], "at least one report")
    first = batch.reports[0].number
    confirmed = _confirmed(session, batch, before=first - 1, now=now)
    if first > confirmed + 1:
        logger.error(
            "reports that were confirmed once are not in the store any more",
            extra={
                "agent_id": batch.agent_id,
                "first_missing": confirmed + 1,
                "last_missing": first - 1,
            },
        )
        confirmed = first - 1
    fresh = []
    for report in batch.reports:
        if report.number == confirmed + 1:
            fresh.append(report)
            confirmed += 1
    _confirm(session, batch, confirmed, now=now)
    targets = _targets(session, {r.token for r in fresh})
    samples: dict[tuple[int, int], list[Sample]] = {}
    late: Counter[tuple[int, int]] = Counter()
    moves = False
    for sent in fresh:
        report = sent
        try:
            report = _storable(sent)
            body = report.decoded()
            reason = _refusal(targets.get(report.token), batch.agent_id, report)
        except InvalidSpec as error:
            reason = str(error)
        if reason is not None:
            session.add(_late(batch, report, reason=reason, now=now))
            late[report.token, report.rank] += 1
        elif isinstance(body, Samples):
            samples.setdefault((report.token, report.rank), []).extend(body.samples)
        else:
            _apply(session, report, body, now=now)
            moves = moves or type(body) in _BARRIERS
    for (token, rank), rows in samples.items():
        insert_samples(session, day=targets[token].day, token=token, rank=rank, samples=rows)
    return Stored(
        confirmed=confirmed,
        admitted_count=len(fresh) - late.total(),
        late_count=late.total(),
        moves_attempts=moves,
        late=late,
        job_ids={token: target.job_id for token, target in targets.items()},
    )


def _storable(report: Report) -> Report:
    """Return the report as every database takes it. Series, the bulk of all, hold no texts.

    Raises:
        InvalidSpec: a body that no JSON text should hold.
    """
    if report.kind in _SERIES:
        return report
    return dataclasses.replace(report, body=_checked(report.body))


def _checked(body: dict[str, object]) -> dict[str, object]:
    free = from_json(dict[str, object], body, where="body")
    return cast(dict[str, object], storable(free))


def _confirmed(session: Session, batch: ReportBatch, *, before: int, now: dt.datetime) -> int:
    """Lock the spool's position, so that an agent's batches are stored one after the other.

    Returns how far the spool is stored; `before` if it is not known here.
    """
    confirmed = session.scalar(_CONFIRMED, _spool(batch))
    if confirmed is not None:
        return confirmed
    session.add(
        SpoolPosition(
            agent_id=batch.agent_id,
            generation=batch.generation,
            confirmed_number=before,
            updated_at=now,
        )
    )
    # Two collectors may meet here; the second fails on the key, and its message comes again.
    session.flush()
    return before


def _confirm(session: Session, batch: ReportBatch, number: int, *, now: dt.datetime) -> None:
    session.connection().execute(_CONFIRM, {**_spool(batch), "number": number, "now": now})


def _spool(batch: ReportBatch) -> dict[str, Any]:
    return {"agent": batch.agent_id, "spool": batch.generation}


def _targets(session: Session, tokens: Iterable[int]) -> dict[int, _Target]:
    """Look up and lock the attempts that reports speak of, so that none ends halfway through."""
    rows = session.execute(_TARGETS, {"tokens": sorted(tokens)})
    targets: dict[int, _Target] = {}
    for token, members in groupby(rows, key=lambda row: row.id):
        gang = list(members)
        _, job_id, state, leased_at, current, _, _ = gang[0]
        targets[token] = _Target(
            job_id=job_id,
            day=leased_at.date(),
            leased=LeasedAttempt(
                state=state,
                is_current=current == token,
                agents={row.rank: row.agent_id for row in gang},
            ),
        )
    return targets


def _refusal(target: _Target | None, agent_id: str, report: Report) -> str | None:
    leased = target.leased if target else None
    return refusal_of_report(leased, agent_id=agent_id, token=report.token, rank=report.rank)


def _apply(session: Session, report: Report, body: ReportBody, *, now: dt.datetime) -> None:
    if isinstance(body, StepTimes):
        insert_steps(session, token=report.token, rank=report.rank, steps=body)
        return
    if isinstance(body, Epoch):
        insert_epoch(session, token=report.token, rank=report.rank, epoch=body)
        return
    if isinstance(body, LogPart):
        insert_log_part(session, token=report.token, rank=report.rank, part=body)
        return
    rank = session.get_one(Rank, (report.token, report.rank))
    phase, column = _BARRIERS[type(body)]
    if getattr(rank, column) is None:
        setattr(rank, column, report.body)
        reached(rank, phase)
        if phase is RankPhase.ENDED:
            rank.ended_at = now
        if isinstance(body, PeersMeasured):
            rank.control_s = body.control_s


def _late(batch: ReportBatch, report: Report, *, reason: str, now: dt.datetime) -> LateReport:
    try:
        body = _checked(report.body)
    except InvalidSpec:
        body = {}  # no database would take it; the reason says what was wrong with it
    return LateReport(
        agent_id=batch.agent_id,
        generation=batch.generation,
        number=report.number,
        token=report.token,
        rank=report.rank,
        kind=report.kind[:32],
        body=body,
        received_at=now,
        reason=reason,
    )
