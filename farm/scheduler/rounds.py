"""The first half of a round, attempts: read, decide in pure code, write, and only then send.

What cannot be sent is not lost: the store says what is due, and a later round sends it again.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import logging
from collections.abc import Sequence

from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from farm.core.commands import StopAttempt
from farm.core.lifecycle import AttemptState
from farm.core.rendezvous import Advance, End, Resend, Wait, decide, voided
from farm.core.storable import storable
from farm.core.trainer_lines import Failure, FailureKind
from farm.core.views import AttemptView
from farm.registry import strategy
from farm.scheduler.outgoing import Outgoing, Rules, outgoing_of
from farm.store.attempts import (
    active_attempts,
    advance_attempt,
    end_attempt,
    mark_commanded,
)
from farm.store.attention import attempts_to_decide
from farm.store.engine import reading, writing
from farm.store.leases import agents_to_stop
from farm.store.outcomes import gather_evidence, record_outcome
from farm.store.repetitions import extend_cells
from farm.store.tables import Attempt

logger = logging.getLogger(__name__)

_STOP_EVERY = dt.timedelta(seconds=2)


def lead_attempts(engine: Engine, *, now: dt.datetime, rules: Rules) -> list[Outgoing]:
    """Advance or end every attempt for which it is time; return the commands to send.

    Most of those that are looked at have nothing to do but to wait, and collectors write to their
    rows all the time: only the others are locked, and decided on once more.
    """
    with reading(engine) as session:
        stirring = attempts_to_decide(session, now=now, end_s=rules.limits.end_s)
        seen = active_attempts(session, stirring, now=now, locks=False)
    tokens = list(seen.unreadable) + [
        a.token for a in seen.attempts if not isinstance(decide(a, rules.limits), Wait)
    ]
    with writing(engine) as session:
        outgoing = _lead(session, tokens, now=now, rules=rules) if tokens else []
        stops = agents_to_stop(session, now=now, alive_within=rules.lease, every=_STOP_EVERY)
    return outgoing + [
        Outgoing(agent_id, StopAttempt(token=token, reason="the attempt is over"))
        for agent_id, token in stops
    ]


def _lead(
    session: Session, tokens: Sequence[int], *, now: dt.datetime, rules: Rules
) -> list[Outgoing]:
    outgoing: list[Outgoing] = []
    commanded: list[tuple[int, int]] = []
    active = active_attempts(session, tokens, now=now)
    ended = set(active.unreadable)
    for token, reason in active.unreadable.items():
        _give_up(session, token, reason, now=now, rules=rules)
    for attempt in active.attempts:
        decision = decide(attempt, rules.limits)
        try:
            if isinstance(decision, End):
                ended.add(attempt.token)
                with session.begin_nested():
                    _end(session, attempt, decision, now=now, rules=rules)
            elif not isinstance(decision, Wait):
                due = _go_on(session, attempt, decision, now=now, rules=rules)
                outgoing += due
                commanded += [(attempt.token, rank) for rank in _ranks(attempt, decision)]
        except OperationalError:
            raise  # it is the database's, and of no attempt in particular
        except Exception as error:
            # What one gang has reported must not stop all the others for ever.
            logger.exception("attempt makes no sense", extra=_ids(attempt))
            reason = f"{type(error).__name__}: {error}"
            _give_up(session, attempt.token, reason, now=now, rules=rules)
            ended.add(attempt.token)
    mark_commanded(session, commanded, now=now)
    extend_cells(session, ended, now=now)
    return outgoing


def _go_on(
    session: Session,
    attempt: AttemptView,
    decision: Resend | Advance,
    *,
    now: dt.datetime,
    rules: Rules,
) -> list[Outgoing]:
    """Return what is due now. Nothing is written before all that may fail is done.

    So that it takes no savepoint, and the database gets the writes of all attempts together.
    """
    state = decision.state if isinstance(decision, Advance) else attempt.state
    outgoing = outgoing_of(attempt, state, _ranks(attempt, decision), limits=rules.limits)
    if isinstance(decision, Resend):
        return [dataclasses.replace(due, is_again=True) for due in outgoing]
    advance_attempt(session, attempt.token, state, now=now)
    logger.info("attempt went on: %s", state.value, extra=_ids(attempt))
    return outgoing


def _ranks(attempt: AttemptView, decision: Resend | Advance) -> tuple[int, ...]:
    """Return the ranks that are told."""
    if isinstance(decision, Resend):
        return decision.ranks
    return tuple(rank.rank for rank in attempt.ranks)


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
