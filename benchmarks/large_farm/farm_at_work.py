"""Keeps a made-up farm busy: writes heartbeats, samples and a change every second.

Nobody runs anything. A thread writes what agents and the scheduler would have written, by the
store's own functions where they are not about single agents.
"""

from __future__ import annotations

import datetime as dt
import itertools
import random
import threading
import time
from types import TracebackType

import sqlalchemy as sa
from sqlalchemy.orm import Session

from benchmarks.large_farm.farm_data import Filled
from benchmarks.large_farm.farm_reports import measured
from benchmarks.large_farm.farm_series import add_tick
from farm.configuration.spec import JobSpec
from farm.errors import FarmError
from farm.gang.lifecycle import AttemptState, JobState
from farm.gang.rendezvous import AttemptEnd
from farm.gang.retries import RetryPolicy
from farm.messages.agents import AgentState
from farm.placement.scheduling import Placement
from farm.store.engine import writing
from farm.store.gangs.decisions import advance_attempts, end_attempts
from farm.store.gangs.leases import lease_gangs
from farm.store.measurements.measurements import insert_measurements
from farm.store.tables import AgentRow, AttemptRow, JobRow
from farm.values.codec import from_json

_EVERY_S = 1.0
_LEASE = dt.timedelta(hours=1)
_ON_THE_WAY = (
    AttemptState.MEASURING,
    AttemptState.SHAPING,
    AttemptState.STARTING,
    AttemptState.RUNNING,
)


class FarmAtWork:
    """Writes for the length of a `with` block."""

    def __init__(self, engine: sa.Engine, filled: Filled) -> None:
        self._engine = engine
        self._filled = filled
        self._rng = random.Random(3)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="farm at work")
        self._failure: BaseException | None = None
        # When the state of a job of the sweep was changed, by time.monotonic().
        self.changed_at_s: list[float] = []

    def __enter__(self) -> FarmAtWork:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        if error is None and self._failure is not None:
            raise FarmError(f"the farm stopped working: {self._failure!r}") from self._failure

    def _work(self) -> None:
        token = 0
        first_second = self._filled.long_run.duration_s
        try:
            for second in itertools.count(first_second):
                begun = time.monotonic()
                now = dt.datetime.now(dt.UTC)
                with writing(self._engine) as session:
                    session.execute(sa.update(AgentRow).values(heartbeat_at=now))
                add_tick(self._engine, self._filled.long_run, second=second, now=now)
                # A job ends, the next one is leased, and its gang passes one barrier after another.
                match (second - first_second) % (2 + len(_ON_THE_WAY)):
                    case 0:
                        self._end_one(now)
                    case 1:
                        token = self._lease_one(now)
                    case n:
                        self._advance(token, _ON_THE_WAY[n - 2], now)
                if self._stop.wait(max(0.0, begun + _EVERY_S - time.monotonic())):
                    return
        except BaseException as error:
            self._failure = error

    def _end_one(self, now: dt.datetime) -> None:
        """End the attempt of the sweep that runs for longest, with its measurement."""
        with writing(self._engine) as session:
            attempt, job = session.execute(
                sa.select(AttemptRow, JobRow)
                .join(JobRow, JobRow.attempt_id == AttemptRow.id)
                .where(JobRow.sweep_id == self._filled.sweep_id, JobRow.state == JobState.RUNNING)
                .order_by(AttemptRow.id)
                .limit(1)
            ).one()
            agent_ids = _agents_of(session, attempt.id)
            end = AttemptEnd(state=AttemptState.SUCCEEDED)
            end_attempts(session, {attempt.id: end}, now=now, policy=RetryPolicy())
            free = (
                sa.update(AgentRow)
                .where(AgentRow.id.in_(agent_ids))
                .values(unclean_token=None, state=AgentState.IDLE)
            )
            session.execute(free)
            row = measured(
                job.id,
                attempt.id,
                from_json(JobSpec, job.spec),
                agent=int(agent_ids[0].removeprefix("agent-")),
                at=now,
                has_failed=False,
                rng=self._rng,
            )
            insert_measurements(session, [row])
        self.changed_at_s.append(time.monotonic())

    def _lease_one(self, now: dt.datetime) -> int:
        """Lease free agents to the first waiting job that fits."""
        with writing(self._engine) as session:
            is_free = AgentRow.attempt_id.is_(None)
            free = session.scalars(
                sa.select(AgentRow.id).where(is_free).order_by(AgentRow.id)
            ).all()
            job_id, world_size = session.execute(
                sa.select(JobRow.id, JobRow.world_size)
                .where(
                    JobRow.sweep_id == self._filled.sweep_id,
                    JobRow.state == JobState.WAITING,
                    JobRow.world_size <= len(free),
                )
                .order_by(JobRow.id)
                .limit(1)
            ).one()
            placement = Placement(job_id, tuple(free[:world_size]))
            token = lease_gangs(session, [placement], now=now, lease=_LEASE).tokens[job_id]
        self.changed_at_s.append(time.monotonic())
        return token

    def _advance(self, token: int, state: AttemptState, now: dt.datetime) -> None:
        with writing(self._engine) as session:
            advance_attempts(session, {token: state}, now=now)
        if state is AttemptState.RUNNING:
            self.changed_at_s.append(time.monotonic())


def _agents_of(session: Session, token: int) -> list[str]:
    of_attempt = sa.select(AgentRow.id).where(AgentRow.attempt_id == token).order_by(AgentRow.id)
    return list(session.scalars(of_attempt))
