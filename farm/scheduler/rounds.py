"""One round of scheduling: read, decide in pure code, write, and only then send.

What cannot be sent is not lost: the store says what is due, and a later round sends it again.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from farm.core.barriers import Limits
from farm.core.commands import Command, StartRank, StopAttempt
from farm.core.gang import commands_for
from farm.core.lifecycle import AttemptState
from farm.core.rendezvous import Advance, Decision, End, Resend, Wait, decide, voided
from farm.core.retries import RetryPolicy
from farm.core.scheduling import place
from farm.core.storable import storable
from farm.core.trainer_lines import Failure, FailureKind
from farm.core.views import AttemptView, WaitingJob
from farm.errors import InvalidSpec, LeaseConflict
from farm.registry import strategy
from farm.store.agents import live_agents
from farm.store.attempts import (
    active_attempts,
    advance_attempt,
    agents_to_stop,
    attempt_of,
    end_attempt,
    mark_commanded,
)
from farm.store.attention import attempts_to_decide
from farm.store.engine import reading, writing
from farm.store.gangs import gangs_at_work
from farm.store.leases import lease_gang
from farm.store.outcomes import gather_evidence, record_outcome
from farm.store.repetitions import extend_cells
from farm.store.tables import Attempt
from farm.store.waiting import waiting_jobs
from farm.store.waiting_queue import WaitingQueue

logger = logging.getLogger(__name__)

_STOP_EVERY = dt.timedelta(seconds=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the scheduler goes by."""

    lease: dt.timedelta
    reserve_after_s: float
    limits: Limits = field(default_factory=Limits)
    policy: RetryPolicy = field(default_factory=RetryPolicy)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A command that is due, for one agent."""

    agent_id: str
    command: Command

    @property
    def ids(self) -> dict[str, object]:
        """What a line of a log names it by."""
        if isinstance(self.command, StartRank):
            return {"agent_id": self.agent_id, **self.command.ids}
        token = getattr(self.command, "token", None)
        return {"agent_id": self.agent_id} | ({} if token is None else {"attempt_id": token})


@dataclass(frozen=True, slots=True)
class Recollection:
    """What one scheduler keeps from round to round; without it the order is less good, and slow.

    `expected_s`: by cell hash, how long jobs take. `last_starts`: by sweep, when it was last given
    agents; `queue`: the jobs that wait. Both are written by the rounds.
    """

    expected_s: Mapping[str, float] = field(default_factory=dict)
    last_starts: dict[int, dt.datetime] = field(default_factory=dict)
    queue: WaitingQueue | None = None


def run_round(
    engine: Engine, *, now: dt.datetime, rules: Rules, recollection: Recollection | None = None
) -> list[Outgoing]:
    """Advance every attempt, place what can be placed, and return the commands to send."""
    with reading(engine) as session:
        tokens = attempts_to_decide(session, now=now, end_s=rules.limits.end_s)
    with writing(engine) as session:
        outgoing = _lead_attempts(session, tokens, now=now, rules=rules) if tokens else []
        stops = agents_to_stop(session, now=now, alive_within=rules.lease, every=_STOP_EVERY)
    outgoing += [
        Outgoing(agent_id, StopAttempt(token=token, reason="the attempt is over"))
        for agent_id, token in stops
    ]
    known = recollection or Recollection()
    return outgoing + _place_jobs(engine, now=now, rules=rules, known=known)


def _lead_attempts(
    session: Session, tokens: Sequence[int], *, now: dt.datetime, rules: Rules
) -> list[Outgoing]:
    outgoing: list[Outgoing] = []
    active = active_attempts(session, tokens, now=now)
    ended = set(active.unreadable)
    for token, reason in active.unreadable.items():
        _give_up(session, token, reason, now=now, rules=rules)
    for attempt in active.attempts:
        decision = decide(attempt, rules.limits)
        if isinstance(decision, Wait):
            continue
        if isinstance(decision, End):
            ended.add(attempt.token)
        try:
            with session.begin_nested():
                outgoing += _carry_out(session, attempt, decision, now=now, rules=rules)
        except OperationalError:
            raise  # it is the database's, and of no attempt in particular
        except Exception as error:
            # What one gang has reported must not stop all the others for ever.
            logger.exception("attempt makes no sense", extra=_ids(attempt))
            reason = f"{type(error).__name__}: {error}"
            _give_up(session, attempt.token, reason, now=now, rules=rules)
            ended.add(attempt.token)
    extend_cells(session, ended, now=now)
    return outgoing


def _carry_out(
    session: Session, attempt: AttemptView, decision: Decision, *, now: dt.datetime, rules: Rules
) -> list[Outgoing]:
    outgoing: list[Outgoing] = []
    if isinstance(decision, Resend):
        outgoing = _commands(attempt, attempt.state, decision.ranks, limits=rules.limits)
        mark_commanded(session, attempt.token, decision.ranks, now=now)
    elif isinstance(decision, Advance):
        everyone = tuple(r.rank for r in attempt.ranks)
        advance_attempt(session, attempt.token, decision.state, now=now)
        logger.info("attempt went on: %s", decision.state.value, extra=_ids(attempt))
        outgoing = _commands(attempt, decision.state, everyone, limits=rules.limits)
        mark_commanded(session, attempt.token, everyone, now=now)
    elif isinstance(decision, End):
        _end(session, attempt, decision, now=now, rules=rules)
    return outgoing


def _give_up(session: Session, token: int, reason: str, *, now: dt.datetime, rules: Rules) -> None:
    """Lose an attempt of which the server can make nothing; so its job comes to an end too."""
    message = f"nothing can be made of what is stored of the attempt ({reason[:500]})"
    failure = Failure(kind=FailureKind.SENSELESS, message=str(storable(message)))
    end_attempt(session, token, AttemptState.LOST, failure=failure, now=now, policy=rules.policy)
    ids = {"job_id": session.get_one(Attempt, token).job_id, "attempt_id": token}
    logger.error("attempt was given up: %s", reason, extra=ids)


def _end(
    session: Session, attempt: AttemptView, end: End, *, now: dt.datetime, rules: Rules
) -> None:
    evidence = None
    if end.state is AttemptState.SUCCEEDED:
        evidence = gather_evidence(
            session,
            attempt,
            limits=rules.limits.noise,
            is_synchronous=strategy(attempt.spec.strategy).facts.is_synchronous,
        )
        if evidence.verdict.voids:
            end = voided(evidence.verdict.voids)
    job_state = end_attempt(
        session,
        attempt.token,
        end.state,
        failure=end.failure,
        now=now,
        policy=rules.policy,
        disturbed={flag.rank: flag.message for flag in end.disturbed if flag.rank is not None},
    )
    if end.state in (AttemptState.SUCCEEDED, AttemptState.FAILED):
        record_outcome(session, attempt, evidence=evidence, failure=end.failure, now=now)
    level = logging.INFO if end.state is AttemptState.SUCCEEDED else logging.WARNING
    reason = end.failure.message if end.failure else None
    logger.log(
        level,
        "attempt ended: %s",
        end.state.value,
        extra={
            **_ids(attempt),
            "job_state": job_state.value,
            "reason": reason,
        },
    )


def _ids(attempt: AttemptView) -> dict[str, int]:
    return {"job_id": attempt.job_id, "attempt_id": attempt.token}


def _commands(
    attempt: AttemptView, state: AttemptState, ranks: tuple[int, ...], *, limits: Limits
) -> list[Outgoing]:
    strategy(attempt.spec.strategy)  # or its ranks would find out, one after the other
    return [
        Outgoing(attempt.ranks[rank].agent_id, command)
        for rank, command in commands_for(attempt, state, ranks, limits=limits).items()
    ]


def _start_commands(
    session: Session, token: int, *, job_id: int, now: dt.datetime, rules: Rules
) -> list[Outgoing]:
    try:
        attempt = attempt_of(session, token, now=now)
        everyone = tuple(r.rank for r in attempt.ranks)
        return _commands(attempt, attempt.state, everyone, limits=rules.limits)
    except InvalidSpec as error:
        # Leased all the same, since the rounds to come give it up and so end the job. Refused
        # here, it would be the first to be placed again, for ever.
        logger.error(  # noqa: TRY400
            "attempt cannot be started: %s",
            error,
            extra={"job_id": job_id, "attempt_id": token},
        )
        return []


def _place_jobs(
    engine: Engine, *, now: dt.datetime, rules: Rules, known: Recollection
) -> list[Outgoing]:
    with reading(engine) as session:
        agents = live_agents(session, now=now, live_within_s=rules.lease.total_seconds())
        if not any(agent.is_idle for agent in agents):
            return []
        jobs, waited_more_s = _queue(session, now=now, known=known)
        gangs = gangs_at_work(session, now=now, expected_s=known.expected_s) if jobs else []
    sweep_ids = {job.job_id: job.sweep_id for job in jobs}
    outgoing: list[Outgoing] = []
    for placement in place(
        jobs,
        agents,
        reserve_after_s=rules.reserve_after_s,
        gangs=gangs,
        since_start_s=_since_start_s(known, set(sweep_ids.values()), now=now),
        waited_more_s=waited_more_s,
    ):
        try:
            with writing(engine) as session:
                token = lease_gang(session, placement, now=now, lease=rules.lease)
                outgoing += _start_commands(
                    session, token, job_id=placement.job_id, now=now, rules=rules
                )
        except LeaseConflict as conflict:
            # Somebody else was quicker; the next round sees what is left.
            logger.info("placement was overtaken: %s", conflict, extra={"job_id": placement.job_id})
            continue
        known.last_starts[sweep_ids[placement.job_id]] = now
        if known.queue is not None:
            known.queue.left(placement.job_id)
        logger.info(
            "gang leased",
            extra={"job_id": placement.job_id, "attempt_id": token, "agents": placement.agent_ids},
        )
    return outgoing


def _queue(
    session: Session, *, now: dt.datetime, known: Recollection
) -> tuple[list[WaitingJob], float]:
    """Return the jobs that may be placed, and for how much longer they have waited than they say.

    Of a queue that is kept only the changes are read.
    """
    if known.queue is not None:
        jobs = known.queue.jobs(session, now=now, expected_s=known.expected_s)
        if jobs is not None:
            return jobs, known.queue.waited_more_s(now)
    return waiting_jobs(session, now=now, expected_s=known.expected_s), 0.0


def _since_start_s(
    known: Recollection, sweep_ids: Collection[int], *, now: dt.datetime
) -> dict[int, float]:
    """Return for how long sweeps that wait have been given nothing; forget those that do not."""
    for sweep_id in known.last_starts.keys() - sweep_ids:
        del known.last_starts[sweep_id]
    return {i: (now - at).total_seconds() for i, at in known.last_starts.items()}
