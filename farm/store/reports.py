"""Idempotent collection: each report counts once, or is kept aside with the reason why not."""

from __future__ import annotations

import dataclasses
import datetime as dt
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

from sqlalchemy import select
from sqlalchemy.orm import Session

from farm.core.admission import LeasedAttempt, refusal_of_report
from farm.core.codec import storable
from farm.core.lifecycle import RankPhase
from farm.core.reports import (
    REPORT_NAMES,
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
from farm.core.trainer_lines import Epoch
from farm.errors import InvalidSpec
from farm.store.attempts import reached
from farm.store.series import insert_epoch, insert_samples, insert_steps
from farm.store.tables import Attempt, Job, LateReport, Rank, SpoolPosition

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What became of a batch. `confirmed`: the agent may forget everything up to it.

    `moves_attempts`: a rank passed a barrier or ended, so the scheduler has reason to look.
    """

    confirmed: int
    admitted_count: int = 0
    late_count: int = 0
    moves_attempts: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    attempt: Attempt
    ranks: dict[int, Rank]
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
    position = _position(session, batch, before=first - 1, now=now)
    if first > position.confirmed_number + 1:
        logger.error(
            "reports that were confirmed once are not in the store any more",
            extra={
                "agent_id": batch.agent_id,
                "first_missing": position.confirmed_number + 1,
                "last_missing": first - 1,
            },
        )
        position.confirmed_number = first - 1
    fresh = []
    expected = position.confirmed_number + 1
    for report in batch.reports:
        if report.number == expected:
            fresh.append(report)
            expected += 1
    position.confirmed_number, position.updated_at = expected - 1, now
    targets = _targets(session, {r.token for r in fresh})
    samples: dict[tuple[int, int], list[Sample]] = {}
    late_count = 0
    moves = False
    for report in map(_storable, fresh):
        try:
            body = report.decoded()
            reason = _refusal(targets.get(report.token), batch.agent_id, report)
        except InvalidSpec as error:
            reason = str(error)
        if reason is not None:
            session.add(_late(batch, report, reason=reason, now=now))
            late_count += 1
        elif isinstance(body, Samples):
            samples.setdefault((report.token, report.rank), []).extend(body.samples)
        else:
            _apply(session, targets[report.token], report, body, now=now)
            moves = moves or type(body) in _BARRIERS
    for (token, rank), rows in samples.items():
        day = targets[token].attempt.leased_at.date()
        insert_samples(session, day=day, token=token, rank=rank, samples=rows)
    return Stored(
        confirmed=position.confirmed_number,
        admitted_count=len(fresh) - late_count,
        late_count=late_count,
        moves_attempts=moves,
    )


def _storable(report: Report) -> Report:
    """Return the report as every database takes it. Series, the bulk of all, hold no texts."""
    if report.kind in _SERIES:
        return report
    return dataclasses.replace(report, body=cast(dict[str, object], storable(report.body)))


def _position(
    session: Session, batch: ReportBatch, *, before: int, now: dt.datetime
) -> SpoolPosition:
    """Lock the spool's row, so that batches of one agent are stored one after the other."""
    key = (batch.agent_id, batch.generation)
    position = session.get(SpoolPosition, key, with_for_update=True)
    if position is None:
        position = SpoolPosition(
            agent_id=batch.agent_id,
            generation=batch.generation,
            confirmed_number=before,
            updated_at=now,
        )
        session.add(position)
        # Two collectors may meet here; the second fails on the key, and its message comes again.
        session.flush()
    return position


def _targets(session: Session, tokens: Iterable[int]) -> dict[int, _Target]:
    """Load and lock the attempts that reports speak of, so that none ends halfway through."""
    wanted = sorted(tokens)
    attempts = session.execute(
        select(Attempt, Job.attempt_id)
        .join(Job, Job.id == Attempt.job_id)
        .where(Attempt.id.in_(wanted))
        .order_by(Attempt.id)
        .with_for_update(of=Attempt)
    ).all()
    ranks: dict[int, dict[int, Rank]] = {token: {} for token in wanted}
    for rank in session.scalars(select(Rank).where(Rank.attempt_id.in_(wanted))):
        ranks[rank.attempt_id][rank.rank] = rank
    return {
        attempt.id: _Target(
            attempt=attempt,
            ranks=ranks[attempt.id],
            leased=LeasedAttempt(
                state=attempt.state,
                is_current=current == attempt.id,
                agents={r.rank: r.agent_id for r in ranks[attempt.id].values()},
            ),
        )
        for attempt, current in attempts
    }


def _refusal(target: _Target | None, agent_id: str, report: Report) -> str | None:
    leased = target.leased if target else None
    return refusal_of_report(leased, agent_id=agent_id, token=report.token, rank=report.rank)


def _apply(
    session: Session, target: _Target, report: Report, body: ReportBody, *, now: dt.datetime
) -> None:
    if isinstance(body, StepTimes):
        insert_steps(session, token=report.token, rank=report.rank, steps=body)
        return
    if isinstance(body, Epoch):
        insert_epoch(session, token=report.token, rank=report.rank, epoch=body)
        return
    rank = target.ranks[report.rank]
    phase, column = _BARRIERS[type(body)]
    if getattr(rank, column) is None:
        setattr(rank, column, report.body)
        reached(rank, phase)
        if phase is RankPhase.ENDED:
            rank.ended_at = now


def _late(batch: ReportBatch, report: Report, *, reason: str, now: dt.datetime) -> LateReport:
    return LateReport(
        agent_id=batch.agent_id,
        generation=batch.generation,
        number=report.number,
        token=report.token,
        rank=report.rank,
        kind=report.kind[:32],
        body=report.body,
        received_at=now,
        reason=reason,
    )
