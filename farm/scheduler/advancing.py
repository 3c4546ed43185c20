"""Advances active jobs: reads their state, decides, stores the result, sends commands.

What cannot be sent is not lost: the store says what is due, and a later round sends it again.

The ends of a round's attempts are read together, judged one by one in pure code, and written
together. What one gang has reported must not stop the others for ever, so an attempt of which
nothing can be made is lost. That is known before anything is written; only if the database itself
refuses what was made of one is each written by itself.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from farm.configuration.axes import spec_values
from farm.configuration.spec import JobSpec
from farm.gang.lifecycle import AttemptState
from farm.gang.rendezvous import AttemptEnd, PassBarrier, Resend, Wait, decide, voided
from farm.gang.snapshots import AttemptView
from farm.gang.step_counts import unlike_step_counts
from farm.messages.commands import StopAttempt
from farm.messages.rank_limits import excess_of_attempt
from farm.messages.trainer_lines import Failure, FailureKind
from farm.registry import dataset_facts, gang_shape, model_size, strategy_or_launcher
from farm.scheduler.outgoing import Outgoing, Rules, outgoing_of
from farm.store.engine import reading, writing
from farm.store.gangs.attempt_measurements import (
    AttemptEvidence,
    clocks,
    evidence_of,
    measurement_of,
)
from farm.store.gangs.attempts import AttemptReports, active_attempts, locked_attempts, reports_of
from farm.store.gangs.decisions import (
    advance_attempts,
    attempts_to_decide,
    end_attempts,
    lock_gangs,
    mark_commanded,
)
from farm.store.gangs.leases import agents_to_stop, is_any_to_stop
from farm.store.measurements.repetitions import extend_cells
from farm.values.codec import storable

logger = logging.getLogger(__name__)

_STOP_EVERY = dt.timedelta(seconds=2)
# Ranks times seconds that they have trained, each of which has left a sample. It bounds the memory
# of a round in which many long attempts end: it takes no more than one attempt of that length,
# and what ends in an ordinary round, tens of gangs of some minutes, is read at once all the same.
_RANK_SECONDS_AT_ONCE = 20_000.0

_Ended: TypeAlias = tuple[AttemptView, AttemptEnd]


def advance_active_attempts(engine: Engine, *, now: dt.datetime, rules: Rules) -> list[Outgoing]:
    """Advance or end every attempt that is due; return the commands to send.

    Most attempts only wait, and collectors write to their rows all the time. So only the others are
    locked, and decided again.
    """
    stopping = {"alive_within": rules.lease, "every": _STOP_EVERY}
    with reading(engine) as session:
        to_decide = attempts_to_decide(session, now=now, end_s=rules.limits.end_s)
        seen = active_attempts(session, to_decide, now=now, locks=False)
        is_any_unclean = is_any_to_stop(session, now=now, **stopping)
    tokens = list(seen.unreadable) + [
        a.token for a in seen.attempts if not isinstance(decide(a, rules.limits), Wait)
    ]
    if not tokens and not is_any_unclean:
        return []
    with writing(engine) as session:
        outgoing = _advance_all(session, tokens, now=now, rules=rules) if tokens else []
        stops = agents_to_stop(session, now=now, **stopping)
    return outgoing + [
        Outgoing(agent_id, StopAttempt(token=token, reason="the attempt is over"))
        for agent_id, token in stops
    ]


def _advance_all(
    session: Session, tokens: Sequence[int], *, now: dt.datetime, rules: Rules
) -> list[Outgoing]:
    """Decide for all attempts, and then write together, which takes fewer statements."""
    outgoing: list[Outgoing] = []
    commanded: list[tuple[int, int]] = []
    onward: dict[int, AttemptState] = {}
    ended: list[_Ended] = []
    active = active_attempts(session, tokens, now=now)
    ends = {token: _given_up(reason) for token, reason in active.unreadable.items()}
    for attempt in active.attempts:
        decision = decide(attempt, rules.limits)
        if isinstance(decision, AttemptEnd):
            ended.append((attempt, decision))
        elif not isinstance(decision, Wait):
            try:
                outgoing += _due(attempt, decision, rules=rules)
            except Exception as error:
                # What one gang has reported must not stop all the others for ever.
                logger.exception("attempt makes no sense", extra=_ids_of(attempt))
                ends[attempt.token] = _given_up(_error_text(error))
                continue
            commanded += [(attempt.token, rank) for rank in _ranks(attempt, decision)]
            if isinstance(decision, PassBarrier):
                onward[attempt.token] = decision.state
                logger.info("attempt went on: %s", decision.state.value, extra=_ids_of(attempt))
    ends |= _final_ends(session, ended, now=now, rules=rules)
    advance_attempts(session, onward, now=now)
    mark_commanded(session, commanded, now=now)
    _write_ends(session, ends, now=now, rules=rules)
    extend_cells(session, list(ends), now=now)
    return outgoing


def _due(attempt: AttemptView, decision: Resend | PassBarrier, *, rules: Rules) -> list[Outgoing]:
    """Return the commands to send now."""
    state = decision.state if isinstance(decision, PassBarrier) else attempt.state
    outgoing = outgoing_of(attempt, state, _ranks(attempt, decision), limits=rules.limits)
    if isinstance(decision, Resend):
        return [dataclasses.replace(due, is_again=True) for due in outgoing]
    return outgoing


def _ranks(attempt: AttemptView, decision: Resend | PassBarrier) -> tuple[int, ...]:
    """Return the ranks that get a command."""
    if isinstance(decision, Resend):
        return decision.ranks
    return tuple(rank.rank for rank in attempt.ranks)


def _final_ends(
    session: Session, ended: Sequence[_Ended], *, now: dt.datetime, rules: Rules
) -> dict[int, AttemptEnd]:
    """Return by token how these attempts end, with their measurements; nothing is written.

    A success becomes another end if its measurement does not count.
    """
    trained = [one for one in ended if one[1].state is AttemptState.SUCCEEDED]
    others = [one for one in ended if one[1].state is not AttemptState.SUCCEEDED]
    stored = locked_attempts(session, [attempt.token for attempt, _ in others])
    ends: dict[int, AttemptEnd] = {}
    for attempt, end in others:
        reports = AttemptReports(members=stored[attempt.token].members)
        ends[attempt.token] = _final_end(attempt, end, reports, now=now, rules=rules)
    for portion in _portions(trained):
        ends |= _final_ends_of_trained(session, portion, now=now, rules=rules)
    return ends


def _given_up(reason: str) -> AttemptEnd:
    """Return the end of an attempt whose reports make no sense: it is lost."""
    message = f"nothing can be made of what is stored of the attempt ({reason[:500]})"
    failure = Failure(kind=FailureKind.SENSELESS, message=storable(message))
    return AttemptEnd(state=AttemptState.LOST, failure=failure)


def _error_text(error: Exception) -> str:
    """Describe an error in an attempt."""
    return f"{type(error).__name__}: {error}"


def _write_ends(
    session: Session, ends: Mapping[int, AttemptEnd], *, now: dt.datetime, rules: Rules
) -> None:
    """End the attempts, and give up those whose end the database refuses."""
    if not ends:
        return
    try:
        with session.begin_nested():
            _write_together(session, ends, now=now, rules=rules)
    except OperationalError:
        raise  # it is the database's, and of no attempt in particular
    except Exception:
        logger.exception("attempts could not be ended together")
    else:
        return
    lock_gangs(session, list(ends))
    for token, end in ends.items():
        try:
            with session.begin_nested():
                _write_together(session, {token: end}, now=now, rules=rules)
        except OperationalError:
            raise
        except Exception as error:
            logger.exception("attempt makes no sense", extra={"attempt_id": token})
            given_up = _given_up(_error_text(error))
            _write_together(session, {token: given_up}, now=now, rules=rules)


def _portions(trained: Sequence[_Ended]) -> Iterator[list[_Ended]]:
    """Yield groups of attempts with about equal amounts of data, each of at least one."""
    portion: list[_Ended] = []
    rank_seconds = 0.0
    for attempt, end in trained:
        its_own = len(attempt.ranks) * max(0.0, attempt.state_age_s)
        if portion and rank_seconds + its_own > _RANK_SECONDS_AT_ONCE:
            yield portion
            portion, rank_seconds = [], 0.0
        portion.append((attempt, end))
        rank_seconds += its_own
    if portion:
        yield portion


def _final_ends_of_trained(
    session: Session, trained: Sequence[_Ended], *, now: dt.datetime, rules: Rules
) -> dict[int, AttemptEnd]:
    """Return how successful attempts end, read at once or, if that fails, one by one."""
    try:
        with session.begin_nested():
            reports = reports_of(session, {a.token: _clocks(a) for a, _ in trained})
    except OperationalError:
        raise
    except Exception as error:
        if len(trained) == 1:
            [(attempt, _)] = trained
            logger.exception("attempt makes no sense", extra=_ids_of(attempt))
            return {attempt.token: _given_up(_error_text(error))}
        ends: dict[int, AttemptEnd] = {}
        for one in trained:
            ends |= _final_ends_of_trained(session, [one], now=now, rules=rules)
        return ends
    return {
        attempt.token: _final_end(attempt, end, reports[attempt.token], now=now, rules=rules)
        for attempt, end in trained
    }


def _final_end(
    attempt: AttemptView,
    end: AttemptEnd,
    reports: AttemptReports,
    *,
    now: dt.datetime,
    rules: Rules,
) -> AttemptEnd:
    try:
        return _judged(attempt, end, reports, now=now, rules=rules)
    except Exception as error:
        # What one gang has reported must not stop all the others for ever.
        logger.exception("attempt makes no sense", extra=_ids_of(attempt))
        return _given_up(_error_text(error))


def _judged(
    attempt: AttemptView,
    end: AttemptEnd,
    reports: AttemptReports,
    *,
    now: dt.datetime,
    rules: Rules,
) -> AttemptEnd:
    evidence, measurement = None, None
    if end.state is AttemptState.SUCCEEDED:
        excess = excess_of_attempt(
            attempt.spec,
            clock_count=len(_clocks(attempt)),
            sample_count=reports.sample_count,
            step_count=reports.step_count,
        )
        if excess is not None:
            return _given_up(excess)
        evidence = evidence_of(
            attempt,
            reports,
            limits=rules.limits.noise,
            is_synchronous=_is_synchronous(attempt),
        )
        if evidence.unreported_steps is not None:
            return _given_up(evidence.unreported_steps)
        if evidence.verdict.voids:
            end = voided(evidence.verdict.voids)
        elif (failure := _unlike_step_counts(attempt.spec, evidence)) is not None:
            end, evidence = AttemptEnd(state=AttemptState.FAILED, failure=failure), None
    if end.state in (AttemptState.SUCCEEDED, AttemptState.FAILED):
        measurement = measurement_of(
            attempt,
            reports,
            evidence=evidence,
            failure=end.failure,
            now=now,
            traffic=functools.partial(
                strategy_or_launcher(attempt.spec.strategy).traffic,
                gang_shape(spec_values(attempt.spec)),
            ),
            dataset=dataset_facts(attempt.spec.dataset),
            size=model_size(attempt.spec.model, attempt.spec.dataset),
        )
    return dataclasses.replace(end, measurement=measurement)


def _unlike_step_counts(spec: JobSpec, evidence: AttemptEvidence) -> Failure | None:
    """Compare the step counts of agents; each agent has compared its own ranks."""
    return unlike_step_counts(
        spec,
        [
            (f"rank {spec.rank_of(outcome.rank, 0)}", outcome.result.timed_step_count)
            for outcome in evidence.outcomes
        ],
    )


def _clocks(attempt: AttemptView) -> Sequence[tuple[int, int]]:
    return clocks(attempt, is_synchronous=_is_synchronous(attempt))


def _is_synchronous(attempt: AttemptView) -> bool:
    return strategy_or_launcher(attempt.spec.strategy).facts.is_synchronous


def _write_together(
    session: Session, ends: Mapping[int, AttemptEnd], *, now: dt.datetime, rules: Rules
) -> None:
    ends = dict(sorted(ends.items()))
    jobs = end_attempts(session, ends, now=now, policy=rules.policy)
    for (token, end), job in zip(ends.items(), jobs, strict=True):
        ids = {"job_id": job.job_id, "attempt_id": token}
        reason = end.failure.message if end.failure else None
        if end.failure is not None and end.failure.kind is FailureKind.SENSELESS:
            logger.error("attempt was given up: %s", reason, extra=ids)
            continue
        level = logging.INFO if end.state is AttemptState.SUCCEEDED else logging.WARNING
        further = {"job_state": job.state.value, "reason": reason}
        logger.log(level, "attempt ended: %s", end.state.value, extra={**ids, **further})


def _ids_of(attempt: AttemptView) -> dict[str, int]:
    """Return the ids of an attempt for log lines."""
    return {"job_id": attempt.job_id, "attempt_id": attempt.token}
