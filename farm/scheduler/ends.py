"""The ends of a round's attempts: read together, judged one by one in pure code, written together.

What one gang has reported must not stop the others for ever, so an attempt of which nothing can be
made is lost. That is known before anything is written; only if the database itself refuses what
was made of one is each written by itself.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from farm.gang.lifecycle import AttemptState
from farm.gang.rendezvous import AttemptEnd, voided
from farm.gang.views import AttemptView
from farm.messages.rank_limits import excess_of_attempt
from farm.messages.trainer_lines import Failure, FailureKind
from farm.registry import strategy
from farm.scheduler.outgoing import Rules
from farm.store.gangs.attempts import locked_attempts
from farm.store.gangs.findings import Findings, findings_of
from farm.store.gangs.moves import Ending, end_attempts, lock_gangs
from farm.store.gangs.outcomes import clocks, evidence_of, measurement_of
from farm.values.storable import storable

logger = logging.getLogger(__name__)

# Ranks times seconds that they have trained, each of which has left a sample. It bounds the memory
# of a round in which many long attempts end: it takes no more than one attempt of that length,
# and what ends in an ordinary round, tens of gangs of some minutes, is read at once all the same.
_RANK_SECONDS_AT_ONCE = 20_000.0


@dataclass(frozen=True, slots=True)
class Over:
    """An attempt that is over, and how."""

    attempt: AttemptView
    end: AttemptEnd


def endings_of(
    session: Session, overs: Sequence[Over], *, now: dt.datetime, rules: Rules
) -> list[Ending]:
    """Return how these attempts end, with their measurements; nothing is written."""
    trained = [over for over in overs if over.end.state is AttemptState.SUCCEEDED]
    others = [over for over in overs if over.end.state is not AttemptState.SUCCEEDED]
    stored = locked_attempts(session, [over.attempt.token for over in others])
    untold = {token: Findings(members=one.members) for token, one in stored.items()}
    endings = [_ending(over, untold, now=now, rules=rules) for over in others]
    for portion in _portions(trained):
        endings += _trained(session, portion, now=now, rules=rules)
    return endings


def given_up(token: int, reason: str) -> Ending:
    """Lose an attempt of which the server can make nothing; so its job comes to an end too."""
    message = f"nothing can be made of what is stored of the attempt ({reason[:500]})"
    failure = Failure(kind=FailureKind.SENSELESS, message=storable(message))
    return Ending(token=token, state=AttemptState.LOST, failure=failure)


def told(error: Exception) -> str:
    """Say what is wrong with an attempt."""
    return f"{type(error).__name__}: {error}"


def write_endings(
    session: Session, endings: Sequence[Ending], *, now: dt.datetime, rules: Rules
) -> None:
    """End the attempts, and give up those whose end the database does not take."""
    if not endings:
        return
    try:
        with session.begin_nested():
            _write(session, endings, now=now, rules=rules)
    except OperationalError:
        raise  # it is the database's, and of no attempt in particular
    except Exception:
        logger.exception("attempts could not be ended together")
    else:
        return
    lock_gangs(session, [ending.token for ending in endings])
    for ending in endings:
        try:
            with session.begin_nested():
                _write(session, [ending], now=now, rules=rules)
        except OperationalError:
            raise
        except Exception as error:
            logger.exception("attempt makes no sense", extra={"attempt_id": ending.token})
            _write(session, [given_up(ending.token, told(error))], now=now, rules=rules)


def _portions(overs: Sequence[Over]) -> Iterator[list[Over]]:
    """Yield as many at once as have left about so much to read; at least one."""
    portion: list[Over] = []
    rank_seconds = 0.0
    for over in overs:
        its_own = len(over.attempt.ranks) * max(0.0, over.attempt.state_age_s)
        if portion and rank_seconds + its_own > _RANK_SECONDS_AT_ONCE:
            yield portion
            portion, rank_seconds = [], 0.0
        portion.append(over)
        rank_seconds += its_own
    if portion:
        yield portion


def _trained(
    session: Session, overs: Sequence[Over], *, now: dt.datetime, rules: Rules
) -> list[Ending]:
    """Return how successful attempts end, read at once or, if that fails, one by one."""
    try:
        with session.begin_nested():
            findings = findings_of(session, {o.attempt.token: _clocks(o.attempt) for o in overs})
    except OperationalError:
        raise
    except Exception as error:
        if len(overs) == 1:
            [over] = overs
            logger.exception("attempt makes no sense", extra=ids_of(over.attempt))
            return [given_up(over.attempt.token, told(error))]
        return [
            ending for over in overs for ending in _trained(session, [over], now=now, rules=rules)
        ]
    return [_ending(over, findings, now=now, rules=rules) for over in overs]


def _ending(
    over: Over, findings: Mapping[int, Findings], *, now: dt.datetime, rules: Rules
) -> Ending:
    try:
        return _judged(over, findings[over.attempt.token], now=now, rules=rules)
    except Exception as error:
        # What one gang has reported must not stop all the others for ever.
        logger.exception("attempt makes no sense", extra=ids_of(over.attempt))
        return given_up(over.attempt.token, told(error))


def _judged(over: Over, findings: Findings, *, now: dt.datetime, rules: Rules) -> Ending:
    attempt, end = over.attempt, over.end
    evidence, measurement = None, None
    if end.state is AttemptState.SUCCEEDED:
        excess = excess_of_attempt(
            attempt.spec,
            clock_count=len(_clocks(attempt)),
            sample_count=findings.sample_count,
            step_count=findings.step_count,
        )
        if excess is not None:
            return given_up(attempt.token, excess)
        evidence = evidence_of(
            attempt,
            findings,
            limits=rules.limits.noise,
            is_synchronous=_is_synchronous(attempt),
        )
        if evidence.untold_steps is not None:
            return given_up(attempt.token, evidence.untold_steps)
        if evidence.verdict.voids:
            end = voided(evidence.verdict.voids)
    if end.state in (AttemptState.SUCCEEDED, AttemptState.FAILED):
        measurement = measurement_of(
            attempt,
            findings,
            evidence=evidence,
            failure=end.failure,
            now=now,
            traffic=strategy(attempt.spec.strategy).traffic,
        )
    return Ending(
        token=attempt.token,
        state=end.state,
        failure=end.failure,
        disturbed={flag.rank: flag.message for flag in end.disturbed if flag.rank is not None},
        measurement=measurement,
    )


def _clocks(attempt: AttemptView) -> Sequence[int]:
    return clocks(attempt, is_synchronous=_is_synchronous(attempt))


def _is_synchronous(attempt: AttemptView) -> bool:
    return strategy(attempt.spec.strategy).facts.is_synchronous


def _write(session: Session, endings: Iterable[Ending], *, now: dt.datetime, rules: Rules) -> None:
    endings = sorted(endings, key=lambda ending: ending.token)
    ended = end_attempts(session, endings, now=now, policy=rules.policy)
    for ending, what in zip(endings, ended, strict=True):
        ids = {"job_id": what.job_id, "attempt_id": ending.token}
        reason = ending.failure.message if ending.failure else None
        if ending.failure is not None and ending.failure.kind is FailureKind.SENSELESS:
            logger.error("attempt was given up: %s", reason, extra=ids)
            continue
        level = logging.INFO if ending.state is AttemptState.SUCCEEDED else logging.WARNING
        further = {"job_state": what.job_state.value, "reason": reason}
        logger.log(level, "attempt ended: %s", ending.state.value, extra={**ids, **further})


def ids_of(attempt: AttemptView) -> dict[str, int]:
    """Return what a line of a log names an attempt by."""
    return {"job_id": attempt.job_id, "attempt_id": attempt.token}
