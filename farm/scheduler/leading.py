"""Gangs that have their lease: read, decide in pure code, write, and only then send.

What cannot be sent is not lost: the store says what is due, and a later round sends it again.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import logging
from collections.abc import Sequence

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from farm.gang.lifecycle import AttemptState
from farm.gang.rendezvous import Advance, AttemptEnd, Resend, Wait, decide
from farm.gang.views import AttemptView
from farm.messages.commands import StopAttempt
from farm.scheduler.ends import Over, endings_of, given_up, ids_of, told, write_endings
from farm.scheduler.outgoing import Outgoing, Rules, outgoing_of
from farm.store.engine import reading, writing
from farm.store.gangs.attempts import active_attempts
from farm.store.gangs.attention import attempts_to_decide
from farm.store.gangs.leases import agents_to_stop, is_any_to_stop
from farm.store.gangs.moves import advance_attempts, mark_commanded
from farm.store.measurements.repetitions import extend_cells

logger = logging.getLogger(__name__)

_STOP_EVERY = dt.timedelta(seconds=2)


def lead_attempts(engine: Engine, *, now: dt.datetime, rules: Rules) -> list[Outgoing]:
    """Advance or end every attempt for which it is time; return the commands to send.

    Most of those that are looked at have nothing to do but to wait, and collectors write to their
    rows all the time: only the others are locked, and decided on once more.
    """
    stopping = {"alive_within": rules.lease, "every": _STOP_EVERY}
    with reading(engine) as session:
        stirring = attempts_to_decide(session, now=now, end_s=rules.limits.end_s)
        seen = active_attempts(session, stirring, now=now, locks=False)
        is_any_unclean = is_any_to_stop(session, now=now, **stopping)
    tokens = list(seen.unreadable) + [
        a.token for a in seen.attempts if not isinstance(decide(a, rules.limits), Wait)
    ]
    if not tokens and not is_any_unclean:
        return []
    with writing(engine) as session:
        outgoing = _lead(session, tokens, now=now, rules=rules) if tokens else []
        stops = agents_to_stop(session, now=now, **stopping)
    return outgoing + [
        Outgoing(agent_id, StopAttempt(token=token, reason="the attempt is over"))
        for agent_id, token in stops
    ]


def _lead(
    session: Session, tokens: Sequence[int], *, now: dt.datetime, rules: Rules
) -> list[Outgoing]:
    """Decide, and only then write, for all attempts together; a statement for each is too many."""
    outgoing: list[Outgoing] = []
    commanded: list[tuple[int, int]] = []
    onward: dict[int, AttemptState] = {}
    overs: list[Over] = []
    active = active_attempts(session, tokens, now=now)
    endings = [given_up(token, reason) for token, reason in active.unreadable.items()]
    for attempt in active.attempts:
        decision = decide(attempt, rules.limits)
        if isinstance(decision, AttemptEnd):
            overs.append(Over(attempt, decision))
        elif not isinstance(decision, Wait):
            try:
                outgoing += _due(attempt, decision, rules=rules)
            except Exception as error:
                # What one gang has reported must not stop all the others for ever.
                logger.exception("attempt makes no sense", extra=ids_of(attempt))
                endings.append(given_up(attempt.token, told(error)))
                continue
            commanded += [(attempt.token, rank) for rank in _ranks(attempt, decision)]
            if isinstance(decision, Advance):
                onward[attempt.token] = decision.state
                logger.info("attempt went on: %s", decision.state.value, extra=ids_of(attempt))
    endings += endings_of(session, overs, now=now, rules=rules)
    advance_attempts(session, onward, now=now)
    mark_commanded(session, commanded, now=now)
    write_endings(session, endings, now=now, rules=rules)
    extend_cells(session, [ending.token for ending in endings], now=now)
    return outgoing


def _due(attempt: AttemptView, decision: Resend | Advance, *, rules: Rules) -> list[Outgoing]:
    """Return what is to be sent now."""
    state = decision.state if isinstance(decision, Advance) else attempt.state
    outgoing = outgoing_of(attempt, state, _ranks(attempt, decision), limits=rules.limits)
    if isinstance(decision, Resend):
        return [dataclasses.replace(due, is_again=True) for due in outgoing]
    return outgoing


def _ranks(attempt: AttemptView, decision: Resend | Advance) -> tuple[int, ...]:
    """Return the ranks that are told."""
    if isinstance(decision, Resend):
        return decision.ranks
    return tuple(rank.rank for rank in attempt.ranks)
