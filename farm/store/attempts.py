"""Attempts while they are active: snapshots to decide on, and what was decided."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Row, func, select, tuple_, update
from sqlalchemy.orm import Session

from farm.core.codec import from_json
from farm.core.control_run import ControlRun
from farm.core.lifecycle import (
    ACTIVE_ATTEMPT_STATES,
    AttemptState,
    JobState,
    RankPhase,
    move,
)
from farm.core.reports import PeersMeasured, Prepared, RankEnded, Shaped
from farm.core.retries import RetryPolicy, after_attempt
from farm.core.spec import BatchSplit, JobSpec
from farm.core.trainer_lines import Failure
from farm.core.views import AttemptView, RankView
from farm.errors import InvalidSpec, NotFound
from farm.store.control_runs import control_runs
from farm.store.tables import Agent, Attempt, Job, JobEvent, Rank

# Under this name a session keeps what `active_attempts` has locked: each decision would read it
# once more.
_LOCKED = "locked attempts"

# On an untouched network ranks tell of both at once.
_HAVE_MEASURED = (RankPhase.MEASURED, RankPhase.SHAPED)

# When a rank's round trips are looked at.
_JUDGED = {
    (AttemptState.SHAPING, RankPhase.SHAPED),
    (AttemptState.RUNNING, RankPhase.ENDED),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Active:
    """Active attempts, oldest first. `unreadable`: token to what is wrong with its rows."""

    attempts: tuple[AttemptView, ...]
    unreadable: Mapping[int, str]


def active_attempts(
    session: Session, tokens: Sequence[int], *, now: dt.datetime, locks: bool = True
) -> Active:
    """Return those of these attempts that are active; with `locks` lock them.

    Two schedulers at once each lock and get what the other one has not. The jobs are locked with
    them: whoever cancels a sweep locks its jobs in another order, and waiting for them here, with
    some locked already, would be a deadlock.
    """
    active = (
        select(Attempt, Job)
        .join(Job, Job.id == Attempt.job_id)
        .where(Attempt.state.in_(ACTIVE_ATTEMPT_STATES), Attempt.id.in_(tokens))
        .order_by(Attempt.id)
    )
    if locks:
        active = active.with_for_update(of=[Attempt, Job], skip_locked=True)
    rows = session.execute(active).all()
    if locks:
        session.info[_LOCKED] = {attempt.id: (attempt, job) for attempt, job in rows}
    members = _members(session, [attempt.id for attempt, _ in rows])
    runs = control_runs(
        session,
        [a.id for a, j in rows if _awaits_judgement(a, members[a.id]) or _awaits_shares(a, j)],
    )
    views: list[AttemptView] = []
    unreadable: dict[int, str] = {}
    for attempt, job in rows:
        try:
            views.append(_view(attempt, job, members[attempt.id], runs, now=now))
        except InvalidSpec as error:
            unreadable[attempt.id] = str(error)
    return Active(attempts=tuple(views), unreadable=unreadable)


def _awaits_judgement(attempt: Attempt, members: Iterable[Row[Rank, Agent]]) -> bool:
    """Whether all control runs of the attempt are in and it has not gone on yet."""
    return attempt.state is AttemptState.MEASURING and all(
        rank.phase in _HAVE_MEASURED for rank, _ in members
    )


def _awaits_shares(attempt: Attempt, job: Job) -> bool:
    """Whether the ranks are, or will next be, told how a batch is shared by their speed."""
    is_near = attempt.state in (AttemptState.SHAPING, AttemptState.STARTING)
    return is_near and job.spec.get("batch_split") == BatchSplit.BY_SPEED.value


def _members(session: Session, tokens: Sequence[int]) -> dict[int, list[Row[Rank, Agent]]]:
    """Return each attempt's ranks in order, with their agents."""
    members: dict[int, list[Row[Rank, Agent]]] = {token: [] for token in tokens}
    rows = session.execute(
        select(Rank, Agent)
        .join(Agent, Agent.id == Rank.agent_id)
        .where(Rank.attempt_id.in_(tokens))
        .order_by(Rank.attempt_id, Rank.rank)
    )
    for member in rows:
        members[member[0].attempt_id].append(member)
    return members


def _view(
    attempt: Attempt,
    job: Job,
    members: Iterable[Row[Rank, Agent]],
    runs: Mapping[tuple[int, int], ControlRun],
    *,
    now: dt.datetime,
) -> AttemptView:
    return AttemptView(
        token=attempt.id,
        job_id=job.id,
        spec=from_json(JobSpec, job.spec),
        state=attempt.state,
        state_age_s=(now - attempt.state_since).total_seconds(),
        ranks=tuple(
            _rank_view(member, runs.get((attempt.id, member[0].rank)), state=attempt.state, now=now)
            for member in members
        ),
        cancel_requested=job.cancel_requested,
    )


def _rank_view(
    member: Row[Rank, Agent],
    control: ControlRun | None,
    *,
    state: AttemptState,
    now: dt.datetime,
) -> RankView:
    rank, agent = member
    # An agent may have been leased anew only after this attempt ended, so a lease of another
    # attempt can only mean that this one's is over.
    holds = agent.attempt_id == rank.attempt_id and agent.lease_expires_at is not None
    expires_at = agent.lease_expires_at if holds else None
    prepared = from_json(Prepared, rank.prepared) if rank.prepared else None
    ended = from_json(RankEnded, rank.ended) if rank.ended else None
    is_judged = (state, rank.phase) in _JUDGED
    shaped = from_json(Shaped, rank.shaped) if is_judged and rank.shaped else None
    return RankView(
        rank=rank.rank,
        agent_id=rank.agent_id,
        phase=rank.phase,
        address=prepared.address if prepared else None,
        framework=_software(prepared) if prepared else None,
        lease_s=(expires_at - now).total_seconds() if expires_at else -1.0,
        command_age_s=(
            (now - rank.commanded_at).total_seconds() if rank.commanded_at else float("inf")
        ),
        succeeded=ended is not None and ended.result is not None,
        failure=ended.failure if ended else None,
        ended_age_s=(now - rank.ended_at).total_seconds() if rank.ended_at else None,
        control=control,
        untouched=from_json(PeersMeasured, rank.peers).rtts if is_judged and rank.peers else (),
        back=ended.rtts if ended else (),
        shaped=shaped.rtts if shaped else (),
        bandwidths=shaped.bandwidths if shaped else (),
        emulator=shaped.emulator if shaped else None,
    )


def advance_attempt(session: Session, token: int, state: AttemptState, *, now: dt.datetime) -> None:
    """Move an attempt to its next state, and its job to `running` with the last barrier.

    Raises:
        InvalidTransition: the attempt is not in the state before.
    """
    attempt, job = _attempt_and_job(session, token)
    attempt.state, attempt.state_since = move(attempt.state, state), now
    if state is AttemptState.RUNNING:
        attempt.started_at = now
        job.state = move(job.state, JobState.RUNNING)
        session.add(JobEvent(job_id=job.id, attempt_id=token, at=now, event="job: running"))
    else:
        event = f"attempt: {state.value}"
        session.add(JobEvent(job_id=job.id, attempt_id=token, at=now, event=event))


def mark_commanded(
    session: Session, ranks: Collection[tuple[int, int]], *, now: dt.datetime
) -> None:
    """Note that these ranks, by token and rank, are sent their present state's command now."""
    if not ranks:
        return
    session.execute(
        update(Rank)
        .where(tuple_(Rank.attempt_id, Rank.rank).in_(ranks))
        .values(commanded_at=now)
        .execution_options(synchronize_session=False)
    )


def end_attempt(
    session: Session,
    token: int,
    state: AttemptState,
    *,
    failure: Failure | None,
    now: dt.datetime,
    policy: RetryPolicy,
    disturbed: Mapping[int, str] | None = None,
) -> JobState:
    """End an attempt, decide what becomes of its job, and let go of the gang, all in one.

    Each agent stays unclean until its own heartbeat says that it serves nothing of this attempt;
    unless the attempt has succeeded, since each rank's last word says so already.
    `disturbed`: rank to what on its machine made the attempt void, so that the next one goes to
    other machines. Returns the job's new state.

    Raises:
        InvalidTransition: the attempt has ended already.
    """
    attempt, job = _attempt_and_job(session, token)
    # Whoever stood still after it had read its clock knows of ranks that ended after its `now`.
    rank_ended_at = session.scalar(select(func.max(Rank.ended_at)).where(Rank.attempt_id == token))
    now = now if rank_ended_at is None else max(now, rank_ended_at)
    attempt.state, attempt.state_since, attempt.ended_at = move(attempt.state, state), now, now
    attempt.failure_kind = failure.kind.value if failure else None
    attempt.reason = failure.message if failure else None
    aftermath = after_attempt(
        state,
        attempt_count=job.attempt_count,
        policy=policy,
        cancel_requested=job.cancel_requested,
    )
    job.state = move(job.state, aftermath.state)
    job.attempt_id = None
    job.failure_kind, job.reason = attempt.failure_kind, attempt.reason
    if aftermath.wait_s is None:
        job.finished_at = now
    else:
        job.due_at = now + dt.timedelta(seconds=aftermath.wait_s)
    for rank, reason in (disturbed or {}).items():
        session.get_one(Rank, (token, rank)).disturbed_by = reason
    agents = select(Agent).where(Agent.attempt_id == token).order_by(Agent.id)
    for agent in session.scalars(agents.with_for_update()):
        agent.attempt_id = agent.lease_expires_at = agent.lease_boot_id = None
        agent.unclean_token = None if state is AttemptState.SUCCEEDED else token
        agent.stop_sent_at = None
    for event in (f"attempt: {state.value}", f"job: {job.state.value}"):
        session.add(
            JobEvent(job_id=job.id, attempt_id=token, at=now, event=event, reason=attempt.reason)
        )
    return job.state


def _attempt_and_job(session: Session, token: int) -> tuple[Attempt, Job]:
    """Lock an attempt and its job, unless this transaction has done so already."""
    locked: dict[int, tuple[Attempt, Job]] = session.info.get(_LOCKED, {})
    if token in locked:
        return locked[token]
    attempt = session.get(Attempt, token, with_for_update=True)
    if attempt is None:
        raise NotFound(f"attempt {token}: there is none")
    job = session.get(Job, attempt.job_id, with_for_update=True)
    assert job is not None, "a foreign key holds it"
    return attempt, job


def reached(rank: Rank, phase: RankPhase) -> None:
    """Move a rank forward to `phase`; a repeated or late report never moves it back."""
    order = list(RankPhase)
    if order.index(phase) > order.index(rank.phase):
        rank.phase, rank.commanded_at = phase, None


def _software(prepared: Prepared) -> str:
    """Return what all ranks of a gang must have the same of."""
    sha256 = prepared.model_sha256
    return prepared.framework if sha256 is None else f"{prepared.framework}, model {sha256[:12]}"
