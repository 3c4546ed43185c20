"""Runs a whole embedded farm in a folder of its own, for a benchmark to measure."""

from __future__ import annotations

import datetime as dt
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import sqlalchemy as sa

from benchmarks.figures import root, say
from farm.broker.wake_up import WakeReason, WakeUp
from farm.embedded.farm import EmbeddedFarm
from farm.embedded.signals import StopSignals
from farm.errors import FarmError
from farm.gang.lifecycle import FINAL_JOB_STATES, JobState
from farm.settings.server import load_settings
from farm.store.engine import make_engine, reading, writing
from farm.store.tables import AgentRow, JobRow
from farm.submission import plan, submit

# The trainer that the tests use: it trains nothing and starts in no time.
FAKE_TRAINER = (sys.executable, str(root() / "tests" / "fakes" / "trainer.py"))
_POLL_S = 0.02

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BenchmarkFarm:
    """A farm that is up, seen from where its jobs are submitted."""

    embedded: EmbeddedFarm
    engine: sa.Engine
    wake: WakeUp
    signals: StopSignals

    def submit(self, *, repetitions: int = 1, **case: object) -> int:
        """Submit a sweep of one cell as `farm submit` does, and return its id."""
        sweep = {"name": "benchmark", "repetitions": repetitions, "case": [case]}
        planned = plan(sweep)
        with writing(self.engine) as session:
            submitted = submit(session, planned, now=dt.datetime.now(dt.UTC))
        self.wake.send(WakeReason.REQUESTED)
        return submitted.sweep_id

    def finish(
        self, sweep_id: int, *, within_s: float, every_s: float = _POLL_S
    ) -> Sequence[JobRow]:
        """Wait until every job of a sweep has succeeded; return them in order.

        Raises:
            FarmError: one did not, or not in time.
        """
        what = f"the end of sweep {sweep_id}"
        jobs = self.wait_for(
            lambda: self._jobs_at_end(sweep_id), what, within_s=within_s, every_s=every_s
        )
        for job in jobs:
            if job.state is not JobState.SUCCEEDED:
                raise FarmError(f"job {job.id} {job.state.value}: {job.reason}")
        return jobs

    def is_over(self, sweep_id: int) -> bool:
        """Whether every job of a sweep has ended, well or not."""
        return self._jobs_at_end(sweep_id) is not None

    def wait_until_idle(self, *, within_s: float = 30.0) -> None:
        """Wait until every agent may be leased."""

        def all_free() -> bool:
            with reading(self.engine) as session:
                agents = session.scalars(sa.select(AgentRow)).all()
            return all(agent.attempt_id is None and agent.unclean_token is None for agent in agents)

        self.wait_for(all_free, "idle agents", within_s=within_s)

    def await_beats(self, *, within_s: float = 30.0) -> None:
        """Wait until every agent has sent a heartbeat after this call."""
        since = dt.datetime.now(dt.UTC)

        def all_beat() -> bool:
            with reading(self.engine) as session:
                agents = session.scalars(sa.select(AgentRow)).all()
            return all(
                agent.heartbeat_at is not None and agent.heartbeat_at > since for agent in agents
            )

        self.wait_for(all_beat, "a heartbeat of every agent", within_s=within_s)

    def _jobs_at_end(self, sweep_id: int) -> Sequence[JobRow] | None:
        query = sa.select(JobRow).where(JobRow.sweep_id == sweep_id).order_by(JobRow.id)
        with reading(self.engine) as session:
            jobs = session.scalars(query).all()
        return jobs if all(job.state in FINAL_JOB_STATES for job in jobs) else None

    def wait_for(
        self,
        condition: Callable[[], T | None],
        what: str,
        *,
        within_s: float,
        every_s: float = _POLL_S,
    ) -> T:
        """Return the condition's first true value.

        Raises:
            FarmError: it did not come in time.
            Stopped: the user asked for the end.
        """
        deadline = time.monotonic() + within_s
        while True:
            self.embedded.check_processes()
            value = condition()
            if value:
                return value
            if time.monotonic() > deadline:
                raise FarmError(f"not within {within_s:g} s: {what}\n{self.embedded.log_tails()}")
            self.signals.pause(every_s)


@contextmanager
def running_farm(*, agents: int, settings: Mapping[str, str]) -> Iterator[BenchmarkFarm]:
    """Run a farm of real processes; `settings` go into the environment of all of them.

    This process's own environment is changed for good: a benchmark has a process of its own.
    """
    for name in [name for name in os.environ if name.startswith(("FARM_", "AGENT_"))]:
        if name != "FARM_DATA_DIR":
            del os.environ[name]
    os.environ.update({"PYTHONPATH": str(root()), **settings})
    with tempfile.TemporaryDirectory(prefix="benchfarm-") as folder:
        loaded = load_settings({**os.environ, "FARM_HOME": f"{folder}/home"})
        with (
            StopSignals() as signals,
            EmbeddedFarm(loaded, agents=agents, signals=signals, report=say) as embedded,
        ):
            engine = make_engine(embedded.settings.database_url)
            try:
                yield BenchmarkFarm(embedded, engine, WakeUp(embedded.settings.broker_url), signals)
            except FarmError:
                signals.pause(0)  # what a Ctrl-C has ended has not failed
                raise
            finally:
                engine.dispose()
