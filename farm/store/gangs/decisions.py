"""Finds the attempts that a scheduler round has to decide on, and writes its decisions.

A statement costs about the same for ten attempts as for one, and a farm of a thousand agents ends
some ten attempts every second. So all rows of an update set the same columns; otherwise SQLAlchemy
would split it into several statements.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import and_, bindparam, case, exists, null, or_, select, tuple_, update
from sqlalchemy.orm import Session

from farm.gang.lifecycle import ACTIVE_ATTEMPT_STATES, AttemptState, JobState, RankPhase, move
from farm.gang.rendezvous import AttemptEnd
from farm.gang.retries import RetryPolicy, after_attempt, pause_s
from farm.store.gangs.attempts import StoredAttempt, locked_attempts
from farm.store.measurements.measurements import insert_measurements
from farm.store.tables import AgentRow, AttemptRow, JobEvent, JobRow, RankRow

# Whether a rank of an attempt has ended or has lost its lease: looked up by the keys of the few
# attempts that are active, since those that are over become ever more.
_LACKS_RANK = (
    exists()
    .where(
        RankRow.attempt_id == AttemptRow.id,
        AgentRow.id == RankRow.agent_id,
        or_(
            RankRow.phase == RankPhase.ENDED,
            AgentRow.attempt_id.is_(None),
            AgentRow.attempt_id != RankRow.attempt_id,
            AgentRow.lease_expires_at.is_(None),
            AgentRow.lease_expires_at <= bindparam("now"),
        ),
    )
    .correlate(AttemptRow)
)


def attempts_to_decide(session: Session, *, now: dt.datetime, end_s: float) -> list[int]:
    """Return the tokens of the active attempts that need a decision, oldest first.

    An attempt needs none if it runs, all its ranks have their leases and have not ended, it is not
    being cancelled, and it is not `end_s` beyond its time limit. Nothing is locked, and little is
    read. A farm of a thousand agents has hundreds of attempts, and locking them while everything is
    read made the collector wait for most of its time.
    """
    rows = session.execute(
        select(
            AttemptRow.id,
            AttemptRow.state,
            AttemptRow.state_since,
            JobRow.cancel_requested,
            JobRow.spec["time_limit_s"].label("limit_s"),
            and_(AttemptRow.state == AttemptState.RUNNING, _LACKS_RANK).label("lacks_rank"),
        )
        .join(JobRow, JobRow.id == AttemptRow.job_id)
        .where(AttemptRow.state.in_(ACTIVE_ATTEMPT_STATES))
        .order_by(AttemptRow.id),
        {"now": now},
    ).all()
    return [
        row.id
        for row in rows
        if row.state is not AttemptState.RUNNING
        or row.cancel_requested
        or row.lacks_rank
        or not _is_within(row.limit_s, age_s=(now - row.state_since).total_seconds() - end_s)
    ]


def _is_within(limit_s: object, *, age_s: float) -> bool:
    """Whether the limit is not passed yet. A limit that is no number is refused later."""
    return isinstance(limit_s, int | float) and age_s < limit_s


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAfterAttempt:
    """The new state of the job of an ended attempt."""

    job_id: int
    state: JobState


def advance_attempts(
    session: Session, states: Mapping[int, AttemptState], *, now: dt.datetime
) -> None:
    """Move attempts, by token, to their next states, and jobs to `running` with the last barrier.

    Raises:
        InvalidTransition: an attempt is not in the state before.
    """
    attempts, jobs = [], []
    rows = locked_attempts(session, states)
    for token, state in states.items():
        attempt, job = rows[token].attempt, rows[token].job
        is_running = state is AttemptState.RUNNING
        attempts.append(
            {
                "id": token,
                "state": move(attempt.state, state),
                "state_since": now,
                "started_at": now if is_running else attempt.started_at,
            }
        )
        if is_running:
            jobs.append({"id": job.id, "state": move(job.state, JobState.RUNNING)})
        event = "job: running" if is_running else f"attempt: {state.value}"
        session.add(JobEvent(job_id=job.id, attempt_id=token, at=now, event=event))
    _update(session, rows.values(), attempts=attempts, jobs=jobs)


def mark_commanded(
    session: Session, ranks: Collection[tuple[int, int]], *, now: dt.datetime
) -> None:
    """Record that these ranks, by token and rank, are sent their state's command now."""
    if not ranks:
        return
    session.execute(
        update(RankRow)
        .where(tuple_(RankRow.attempt_id, RankRow.rank).in_(ranks))
        .values(commanded_at=now)
        .execution_options(synchronize_session=False)
    )


def end_attempts(
    session: Session, ends: Mapping[int, AttemptEnd], *, now: dt.datetime, policy: RetryPolicy
) -> list[JobAfterAttempt]:
    """End attempts, by token, decide what becomes of their jobs, and release their gangs.

    Each agent stays unclean until its own heartbeat says that it serves nothing of its attempt. If
    the attempt has succeeded, the last report of each rank says so already. Returns the jobs in the
    order of `ends`. Everything is written when it returns.

    Raises:
        InvalidTransition: an attempt has ended already.
    """
    rows = locked_attempts(session, ends)
    attempts, jobs = [], []
    for token, end in ends.items():
        stored = rows[token]
        attempt, job = _rows_after(stored, end, now=now, policy=policy)
        attempts.append(attempt)
        jobs.append(job)
        for flag in end.disturbed:
            if flag.rank is not None:
                stored.members[flag.rank].rank.disturbed_by = flag.message
        session.add_all(
            JobEvent(
                job_id=job["id"],
                attempt_id=token,
                at=attempt["ended_at"],
                event=event,
                reason=attempt["reason"],
            )
            for event in (f"attempt: {end.state.value}", f"job: {job['state'].value}")
        )
    succeeded = [token for token, end in ends.items() if end.state is AttemptState.SUCCEEDED]
    _let_go(session, rows.values(), succeeded)
    _update(session, rows.values(), attempts=attempts, jobs=jobs)
    measurements = [end.measurement for end in ends.values() if end.measurement is not None]
    insert_measurements(session, measurements)
    return [JobAfterAttempt(job_id=job["id"], state=job["state"]) for job in jobs]


def _rows_after(
    stored: StoredAttempt, end: AttemptEnd, *, now: dt.datetime, policy: RetryPolicy
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the new values of the rows of an attempt and its job."""
    attempt, job = stored.attempt, stored.job
    # A scheduler that was suspended after it read its clock sees ranks that ended after its `now`.
    at = max([now, *(m.rank.ended_at for m in stored.members if m.rank.ended_at is not None)])
    reason = {
        "failure_kind": end.failure.kind.value if end.failure else None,
        "reason": end.failure.message if end.failure else None,
    }
    next_state = after_attempt(
        end.state,
        attempt_count=job.attempt_count,
        policy=policy,
        cancel_requested=job.cancel_requested,
    )
    is_retried = next_state is JobState.WAITING
    pause = dt.timedelta(seconds=pause_s(job.attempt_count, policy=policy))
    ended = {
        "id": attempt.id,
        "state": move(attempt.state, end.state),
        "state_since": at,
        "ended_at": at,
        **reason,
    }
    left = {
        "id": job.id,
        "state": move(job.state, next_state),
        "attempt_id": None,
        "finished_at": job.finished_at if is_retried else at,
        "due_at": now + pause if is_retried else job.due_at,
        **reason,
    }
    return ended, left


def lock_gangs(session: Session, tokens: Collection[int]) -> Sequence[str]:
    """Lock the agents that are leased to these attempts, in the order of their ids; return those.

    Call it before ending several attempts one by one: heartbeats lock agents in this order
    too.
    """
    members = select(RankRow.agent_id).where(RankRow.attempt_id.in_(tokens))
    held = select(AgentRow.id).where(AgentRow.id.in_(members), AgentRow.attempt_id.in_(tokens))
    return session.scalars(held.order_by(AgentRow.id).with_for_update()).all()


def _let_go(session: Session, rows: Collection[StoredAttempt], succeeded: Sequence[int]) -> None:
    """End the leases of the gangs' agents, which are locked in the order of their ids."""
    agent_ids = lock_gangs(session, [stored.attempt.id for stored in rows])
    if not agent_ids:
        return
    is_clean = AgentRow.attempt_id.in_(succeeded)
    session.execute(
        update(AgentRow)
        .where(AgentRow.id.in_(agent_ids))
        .values(
            attempt_id=None,
            lease_expires_at=None,
            lease_boot_id=None,
            unclean_token=case((is_clean, null()), else_=AgentRow.attempt_id),
            stop_sent_at=None,
        )
    )


def _update(
    session: Session,
    rows: Collection[StoredAttempt],
    *,
    attempts: Sequence[Mapping[str, Any]],
    jobs: Sequence[Mapping[str, Any]],
) -> None:
    """Write new values with one statement for each table, and expire the loaded ones."""
    for table, changed in ((AttemptRow, attempts), (JobRow, jobs)):
        if changed:
            session.execute(update(table), changed)
    for stored in rows:
        session.expire(stored.attempt)
        session.expire(stored.job)
