"""Stores where messages go, what they say, and what became of each."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, and_, case, exists, func, literal, or_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, aliased

from farm.gang.lifecycle import FINAL_JOB_STATES
from farm.gang.retries import is_to_come
from farm.messages.agents import AgentState
from farm.notifications.addresses import masked
from farm.notifications.events import DeliveryState, EventKind
from farm.store.tables import (
    AgentRow,
    JobRow,
    NotificationDelivery,
    NotificationEvent,
    NotificationTarget,
    SweepRow,
)

# A clock that was set back must not hold messages for longer than this.
LONGEST_NOTIFICATION_PAUSE = dt.timedelta(hours=1)
# How far back a scheduler looks for events when it begins. Until then each is kept, so that none is
# found anew.
FIRST_LOOK = dt.timedelta(days=7)
AGENT_SUBJECT = "agent "  # followed by its id


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectedEvent:
    """A detected event. `subject`: the object concerned, such as `sweep 3`."""

    kind: EventKind
    subject: str
    at: dt.datetime
    data: Mapping[str, Any]
    sweep_id: int | None = None


def add_targets(
    session: Session,
    addresses: Sequence[str],
    secrets: Sequence[str],
    *,
    sweep_id: int | None,
    now: dt.datetime,
) -> None:
    """Add addresses: of a sweep, or of the whole farm."""
    session.add_all(
        NotificationTarget(
            address=address, secret=secret, sweep_id=sweep_id, created_at=now, due_at=now
        )
        for address, secret in zip(addresses, secrets, strict=True)
    )


def targets_of_farm(session: Session) -> Sequence[NotificationTarget]:
    """Return the addresses of the whole farm, the oldest first."""
    query = select(NotificationTarget).where(
        NotificationTarget.sweep_id.is_(None), NotificationTarget.removed_at.is_(None)
    )
    return session.scalars(query.order_by(NotificationTarget.id)).all()


def has_targets(session: Session) -> bool:
    """Whether anybody wants messages."""
    return bool(session.scalar(select(exists().where(NotificationTarget.removed_at.is_(None)))))


@dataclass(frozen=True, slots=True)
class EndedSweep:
    """A sweep whose jobs are all over. `at`: when the last one was."""

    sweep_id: int
    at: dt.datetime


def ended_sweeps(session: Session, *, since: dt.datetime) -> list[EndedSweep]:
    """Return the sweeps that ended since then, with pending notifications."""
    job = aliased(JobRow)
    ended = (
        select(JobRow.sweep_id, func.max(JobRow.finished_at).label("at"))
        .where(JobRow.finished_at >= since)
        .group_by(JobRow.sweep_id)
        .subquery()
    )
    is_told = exists().where(
        NotificationEvent.sweep_id == ended.c.sweep_id,
        NotificationEvent.at == ended.c.at,
        NotificationEvent.kind.in_((EventKind.SWEEP_FINISHED, EventKind.SWEEP_FAILED)),
    )
    is_open = exists().where(job.sweep_id == ended.c.sweep_id, job.state.not_in(FINAL_JOB_STATES))
    query = (
        select(ended.c.sweep_id, ended.c.at)
        .where(~is_open, ~is_told, _is_wanted(ended.c.at, sweep_id=ended.c.sweep_id))
        .order_by(ended.c.at, ended.c.sweep_id)
    )
    return [EndedSweep(row.sweep_id, row.at) for row in session.execute(query)]


def sweeps_over_budget(session: Session, *, since: dt.datetime) -> Sequence[SweepRow]:
    """Return the sweeps that used up their budget since then, without those already reported."""
    at = SweepRow.budget_used_up_at
    is_told = exists().where(
        NotificationEvent.kind == EventKind.BUDGET_USED_UP,
        NotificationEvent.sweep_id == SweepRow.id,
        NotificationEvent.at == at,
    )
    query = select(SweepRow).where(at >= since, ~is_told, _is_wanted(at, sweep_id=SweepRow.id))
    return session.scalars(query.order_by(at, SweepRow.id)).all()


def silent_agents(
    session: Session, *, since: dt.datetime, until: dt.datetime
) -> Sequence[AgentRow]:
    """Return the agents last heard between these two, with pending notifications.

    None of those that were told to stop.
    """
    is_told = exists().where(
        NotificationEvent.kind == EventKind.AGENT_LOST,
        NotificationEvent.subject == literal(AGENT_SUBJECT) + AgentRow.id,
        NotificationEvent.at == AgentRow.heartbeat_at,
    )
    query = select(AgentRow).where(
        AgentRow.heartbeat_at.between(since, until),
        AgentRow.state != AgentState.LEAVING,
        AgentRow.is_removed.is_(False),
        ~is_told,
        _is_wanted(AgentRow.heartbeat_at),
    )
    return session.scalars(query).all()


def _is_wanted(at: Any, *, sweep_id: Any = None) -> ColumnElement[bool]:
    """Whether a message about what happened then, to a sweep where one is given, goes anywhere."""
    return exists().where(NotificationTarget.removed_at.is_(None), _wants(at, sweep_id=sweep_id))


def _wants(at: Any, *, sweep_id: Any) -> ColumnElement[bool]:
    """Whether a target gets messages about it: the sweep's own, or one of the farm by then."""
    of_farm = NotificationTarget.sweep_id.is_(None) & (NotificationTarget.created_at <= at)
    return of_farm if sweep_id is None else or_(of_farm, NotificationTarget.sweep_id == sweep_id)


def record(session: Session, found: Collection[DetectedEvent], *, now: dt.datetime) -> int:
    """Store new events, and a delivery for each target that wants them; return how many.

    The database lets an event in once, even if others have found it, too.
    """
    count = 0
    for event in found:
        query = select(NotificationTarget.id).where(
            NotificationTarget.removed_at.is_(None), _wants(event.at, sweep_id=event.sweep_id)
        )
        target_ids = session.scalars(query).all()
        if not target_ids:
            continue
        row = NotificationEvent(
            kind=event.kind.value,
            subject=event.subject,
            at=event.at,
            sweep_id=event.sweep_id,
            data=dict(event.data),
        )
        try:
            with session.begin_nested():
                session.add(row)
        except IntegrityError:
            continue
        session.add_all(
            NotificationDelivery(
                event_id=row.id, target_id=target_id, state=DeliveryState.WAITING, due_at=now
            )
            for target_id in target_ids
        )
        count += 1
    return count


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """An event on its way to one address. `message_id` is the same each time that it is sent."""

    delivery_id: int
    message_id: str
    secret: str
    kind: str
    at: dt.datetime
    data: Mapping[str, Any]
    attempt_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedAddress:
    """An address that no other process sends to until the claim is over."""

    address: str
    failure_count: int
    messages: Sequence[Message]


def _is_due(column: Any, now: dt.datetime) -> ColumnElement[bool]:
    # As `is_to_come` says it of one value.
    return or_(column <= now, column > now + LONGEST_NOTIFICATION_PAUSE)


def claim_addresses(
    session: Session, *, now: dt.datetime, claim: dt.timedelta, most: int, most_messages: int
) -> list[ClaimedAddress]:
    """Take addresses that messages are due for, at most so many, each until the claim is over.

    Those of the farm come first, and then those that have waited longest, so that a submitter whose
    addresses do not answer cannot delay the messages of others.
    """
    waits = (
        NotificationDelivery.state == DeliveryState.WAITING,
        _is_due(NotificationDelivery.due_at, now),
    )
    due = (
        exists()
        .where(NotificationDelivery.target_id == NotificationTarget.id, *waits)
        .correlate(NotificationTarget)
    )
    is_of_sweeps = func.min(case((NotificationTarget.sweep_id.is_(None), 0), else_=1))
    first = (
        select(func.min(NotificationTarget.id))
        .where(due, _is_due(NotificationTarget.due_at, now))
        .group_by(NotificationTarget.address)
        .order_by(is_of_sweeps, func.min(NotificationTarget.due_at))
        .limit(most)
    )
    addresses = session.scalars(
        select(NotificationTarget.address).where(NotificationTarget.id.in_(first))
    ).all()
    claimed = []
    for address in sorted(addresses):
        # The scheduler that holds this lock sends to the address.
        targets = session.scalars(
            select(NotificationTarget)
            .where(NotificationTarget.address == address)
            .order_by(NotificationTarget.id)
            .with_for_update()
        ).all()
        if any(
            is_to_come(one.due_at, now=now, longest=LONGEST_NOTIFICATION_PAUSE) for one in targets
        ):
            continue
        for target in targets:
            target.due_at = now + claim
        rows = session.execute(
            select(NotificationDelivery, NotificationEvent, NotificationTarget.secret)
            .join(NotificationEvent, NotificationEvent.id == NotificationDelivery.event_id)
            .join(NotificationTarget, NotificationTarget.id == NotificationDelivery.target_id)
            .where(NotificationTarget.address == address, *waits)
            .order_by(NotificationDelivery.id)
            .limit(most_messages)
        )
        claimed.append(
            ClaimedAddress(
                address=address,
                failure_count=max(target.failure_count for target in targets),
                messages=[_message(*row) for row in rows],
            )
        )
    return claimed


def _message(delivery: NotificationDelivery, event: NotificationEvent, secret: str) -> Message:
    named = f"{event.id} {event.kind} {event.subject} {event.at.isoformat()}"
    return Message(
        delivery_id=delivery.id,
        message_id=f"msg_{hashlib.sha256(named.encode()).hexdigest()[:32]}",
        secret=secret,
        kind=event.kind,
        at=event.at,
        data=event.data,
        attempt_count=delivery.attempt_count,
    )


def is_old_delivery(before: dt.datetime) -> ColumnElement[bool]:
    """Messages that are sent no more: delivered or given up before, and of events before, that."""
    return and_(
        NotificationDelivery.state != DeliveryState.WAITING,
        NotificationDelivery.last_at < before,
        NotificationDelivery.event_id.in_(
            select(NotificationEvent.id).where(NotificationEvent.at < before)
        ),
    )


def is_old_event(before: dt.datetime) -> ColumnElement[bool]:
    """Events before that of which no message is left."""
    has_messages = exists().where(NotificationDelivery.event_id == NotificationEvent.id)
    return and_(NotificationEvent.at < before, ~has_messages)


def note_attempt(
    session: Session,
    delivery_id: int,
    *,
    state: DeliveryState,
    outcome: str,
    due_at: dt.datetime,
    now: dt.datetime,
) -> None:
    """Store how sending a message went."""
    session.execute(
        update(NotificationDelivery)
        .where(NotificationDelivery.id == delivery_id)
        .values(
            state=state,
            attempt_count=NotificationDelivery.attempt_count + 1,
            last_at=now,
            last_said=outcome,
            due_at=due_at,
        )
    )


def release_address(
    session: Session, address: str, *, failure_count: int, due_at: dt.datetime
) -> None:
    """End a claim; nothing is sent there before `due_at`."""
    session.execute(
        update(NotificationTarget)
        .where(NotificationTarget.address == address)
        .values(failure_count=failure_count, due_at=due_at)
    )


def remove_target(session: Session, target_id: int, *, now: dt.datetime) -> None:
    """Send nothing there any more; what still waits is given up."""
    session.execute(
        update(NotificationTarget).where(NotificationTarget.id == target_id).values(removed_at=now)
    )
    session.execute(
        update(NotificationDelivery)
        .where(
            NotificationDelivery.target_id == target_id,
            NotificationDelivery.state == DeliveryState.WAITING,
        )
        .values(state=DeliveryState.GIVEN_UP, last_said="its address was removed", last_at=now)
    )


def remove_address(session: Session, address: str, *, now: dt.datetime) -> None:
    """Stop all messages to an address, for all its targets: see `remove_target`."""
    release_address(session, address, failure_count=0, due_at=now)
    of_address = select(NotificationTarget.id).where(
        NotificationTarget.address == address, NotificationTarget.removed_at.is_(None)
    )
    for target_id in session.scalars(of_address).all():
        remove_target(session, target_id, now=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedDelivery:
    """A line of the log. `address` has its secrets still: mask it."""

    id: int
    kind: str
    subject: str
    sweep_id: int | None
    at: dt.datetime
    address: str
    state: DeliveryState
    attempt_count: int
    last_at: dt.datetime | None
    last_said: str | None

    def to_json(self) -> dict[str, Any]:
        """Return its JSON form, except instants, without secrets."""
        return {
            "id": self.id,
            "at": self.at,
            "type": self.kind,
            "about": self.subject,
            "sweep_id": self.sweep_id,
            "address": masked(self.address),
            "state": self.state.value,
            "attempt_count": self.attempt_count,
            "last_at": self.last_at,
            "last_answer": self.last_said,
        }


def list_deliveries(
    session: Session, *, sweep_id: int | None = None, before_id: int | None = None, limit: int
) -> list[LoggedDelivery]:
    """Return sent and waiting messages, the newest first; of one sweep if given."""
    query = (
        select(NotificationDelivery, NotificationEvent, NotificationTarget.address)
        .join(NotificationEvent, NotificationEvent.id == NotificationDelivery.event_id)
        .join(NotificationTarget, NotificationTarget.id == NotificationDelivery.target_id)
        .order_by(NotificationDelivery.id.desc())
        .limit(limit)
    )
    if sweep_id is not None:
        query = query.where(NotificationEvent.sweep_id == sweep_id)
    if before_id is not None:
        query = query.where(NotificationDelivery.id < before_id)
    return [
        LoggedDelivery(
            id=delivery.id,
            kind=event.kind,
            subject=event.subject,
            sweep_id=event.sweep_id,
            at=event.at,
            address=address,
            state=delivery.state,
            attempt_count=delivery.attempt_count,
            last_at=delivery.last_at,
            last_said=delivery.last_said,
        )
        for delivery, event, address in session.execute(query)
    ]
