"""Makes up the attempts of a large farm: rows of attempts, ranks and job events."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from benchmarks.large_farm.farm_reports import end_of_rank, rank_row
from farm.configuration.spec import JobSpec
from farm.gang.lifecycle import AttemptState, JobState
from farm.store.tables import AttemptRow, JobEvent, RankRow

SETUP_S = 8.0  # from the lease to the first step
_ON_THE_WAY = (
    *("job: leased", "attempt: measuring", "attempt: shaping", "attempt: starting"),
    "job: running",
)
JOB_STATES = {
    AttemptState.SUCCEEDED: JobState.SUCCEEDED,
    AttemptState.FAILED: JobState.FAILED,
    AttemptState.CANCELLED: JobState.CANCELLED,
    AttemptState.LOST: JobState.WAITING,
    AttemptState.RUNNING: JobState.RUNNING,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedAttempt:
    """One attempt that has trained: what its samples and step times are made for."""

    token: int
    world_size: int
    leased_at: dt.datetime
    duration_s: int


class Attempts:
    """Collects the rows of attempts, and writes all at once."""

    def __init__(self, *, agent_count: int) -> None:
        self._agent_count = agent_count
        self._attempts: list[dict[str, Any]] = []
        self._ranks: list[dict[str, Any]] = []
        self._events: list[dict[str, Any]] = []

    def add(
        self,
        job_id: int,
        spec: JobSpec,
        state: AttemptState,
        *,
        number: int = 1,
        leased_at: dt.datetime,
        duration_s: int,
        first_agent: int,
    ) -> TrainedAttempt:
        """Add an attempt that trained so long, on agents from that number on."""
        token = len(self._attempts) + 1
        started_at = leased_at + dt.timedelta(seconds=SETUP_S)
        ended_at = started_at + dt.timedelta(seconds=duration_s)
        is_over = state is not AttemptState.RUNNING
        is_lost = state is AttemptState.LOST
        self._attempts.append(
            {
                "id": token,
                "job_id": job_id,
                "number": number,
                "state": state,
                "state_since": ended_at if is_over else started_at,
                "leased_at": leased_at,
                "started_at": started_at,
                "ended_at": ended_at if is_over else None,
                "failure_kind": "agent_lost" if is_lost else None,
                "reason": "the lease of rank 0 ran out" if is_lost else None,
            }
        )
        for rank in range(spec.world_size):
            agent = (first_agent + rank) % self._agent_count
            row = rank_row(token, rank, spec.world_size, agent)
            if is_over:
                row |= end_of_rank(rank, spec, state=state, lasts_s=duration_s, at=ended_at)
            self._ranks.append({"agent_id": agent_name(agent), **row})
        self._tell(job_id, token, state, leased_at=leased_at, ended_at=ended_at)
        return TrainedAttempt(
            token=token, world_size=spec.world_size, leased_at=leased_at, duration_s=duration_s
        )

    def write(self, session: Session) -> None:
        """Store what was added. The caller owns the transaction."""
        session.execute(sa.insert(AttemptRow), self._attempts)
        session.execute(sa.insert(RankRow), self._ranks)
        session.execute(sa.insert(JobEvent), self._events)
        # Their ids were given, which the database has not counted.
        last = sa.text("SELECT setval(pg_get_serial_sequence('attempts', 'id'), :last)")
        session.execute(last, {"last": len(self._attempts)})

    def _tell(
        self,
        job_id: int,
        token: int,
        state: AttemptState,
        *,
        leased_at: dt.datetime,
        ended_at: dt.datetime,
    ) -> None:
        events = [
            (leased_at + dt.timedelta(seconds=n * SETUP_S / len(_ON_THE_WAY)), event)
            for n, event in enumerate(_ON_THE_WAY)
        ]
        if state is not AttemptState.RUNNING:
            events.append((ended_at, f"attempt: {state.value}"))
            events.append((ended_at, f"job: {JOB_STATES[state].value}"))
        self._events += [
            {"job_id": job_id, "attempt_id": token, "at": at, "event": event}
            for at, event in events
        ]


def agent_name(number: int) -> str:
    return f"agent-{number:03}"
