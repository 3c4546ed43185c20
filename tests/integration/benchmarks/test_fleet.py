"""Thirty simulated agents, a real store and a clock of the test's own: what a slow server does.

The agents are the real heartbeat, delivery, fencing and rank. The broker is a list.
"""

from __future__ import annotations

import datetime as dt
import random
from collections import deque

import pytest
import sqlalchemy as sa

from benchmarks.fleet.agent import Noted, SimulatedAgent
from benchmarks.fleet.machine import backlog_role
from farm.collector.ingest import read_batch, take_batches
from farm.gang.lifecycle import AttemptState
from farm.messages.commands import (
    COMMAND_NAMES,
    BeatConfirmed,
    Command,
    Go,
    Peers,
    Shape,
    StartRank,
)
from farm.messages.envelope import seal
from farm.store.engine import reading, writing
from farm.store.result_tables import SampleRow
from tests.factories import NOW, add_agent, add_attempt, add_job, agent_facts, job_spec

AGENTS, RETURNING = 30, 3
BACKLOG_S = 600
TURN_S = 0.25
KEPT = 100  # the broker's limit, see farm.broker.sending.REPORTS_KEPT


class Farm:
    """Agents that train, and a collector that takes `per_s` messages of them a second."""

    def __init__(self, engine: sa.Engine, *, returning: int = 0) -> None:
        self.now = 0.0
        self.per_s = 1000.0
        self.longest = 0
        self.queue: deque[dict[str, object]] = deque()
        self.noted = {name: Noted() for name in ("returning", "others")}
        self.agents: dict[str, SimulatedAgent] = {}
        self._engine = engine
        self._credit = 0.0
        rng = random.Random(1)
        with writing(engine) as session:
            for number in range(AGENTS):
                agent_id = f"a{number}"
                is_back = number < returning
                labels = {"role": backlog_role(BACKLOG_S)} if is_back else {}
                spec = job_spec(labels=labels, steps=100_000)
                facts = agent_facts(machine_id=agent_id)
                add_agent(session, agent_id, facts=facts)
                job_id = add_job(session, spec)
                token = add_attempt(session, job_id, [agent_id], state=AttemptState.RUNNING)
                agent = SimulatedAgent(
                    agent_id,
                    facts=facts,
                    noted=self.noted["returning" if is_back else "others"],
                    rng=rng,
                    now=0.0,
                )
                self.agents[agent_id] = agent
                self._tell(agent_id, _start(token, spec=spec))
                # Each barrier takes the machine a moment.
                barriers: tuple[Command, ...] = (
                    Peers(token=token, addresses=(), timeout_s=60.0),
                    Shape(token=token, profile=None, timeout_s=60.0),
                    Go(token=token, cluster={"worker": ("127.0.0.1:20001",)}, timeout_s=60.0),
                )
                for place, command in enumerate(barriers):
                    self._work(agent_id, 0.1 * (1 + place))
                    self._tell(agent_id, command)

    def run(self, duration_s: float) -> None:
        """Let so much time pass."""
        until = self.now + duration_s
        while self.now < until:
            self.now += TURN_S
            for agent_id in self.agents:
                self._work(agent_id)
            self._collect()
            self.longest = max(self.longest, len(self.queue))

    def lags_s(self, whose: str) -> list[float]:
        """Return the lags of the reports confirmed since this was asked last."""
        lags_s = list(self.noted[whose].lags_s)
        self.noted[whose].lags_s.clear()
        return lags_s

    def unconfirmed(self) -> int:
        return sum(a.spool.last_number - a.spool.confirmed for a in self.agents.values())

    def _work(self, agent_id: str, more_s: float = 0.0) -> None:
        for what, envelope in self.agents[agent_id].act(now=self.now + more_s):
            if what == "reports":
                self.queue.append(envelope)
                while len(self.queue) > KEPT:
                    self.queue.pop()
                continue
            beat = envelope["message"]
            assert isinstance(beat, dict)
            self._tell(
                agent_id,
                BeatConfirmed(boot_id=beat["boot_id"], counter=beat["counter"], server_time_s=0.0),
            )

    def _collect(self) -> None:
        self._credit = min(self._credit + self.per_s * TURN_S, self.per_s)
        count = min(int(self._credit), len(self.queue))
        self._credit -= count
        if count:
            batches = [read_batch(self.queue.popleft()) for _ in range(count)]
            for agent_id, confirm, stored in take_batches(
                self._engine, batches, now=NOW + dt.timedelta(seconds=self.now)
            ):
                assert stored.late_count == 0
                self._tell(agent_id, confirm)

    def _tell(self, agent_id: str, command: Command) -> None:
        name = COMMAND_NAMES[type(command)]
        self.agents[agent_id].obey(name, seal(command), now=self.now)


def _start(token: int, *, spec: object) -> StartRank:
    return StartRank(
        token=token,
        rank=0,
        agent_count=1,
        roles=("worker",),
        spec=spec,  # type: ignore[arg-type] # job_spec's
        prepare_timeout_s=60.0,
    )


@pytest.fixture
def database_kind() -> str:
    return "sqlite"


def sample_count(engine: sa.Engine) -> int:
    with reading(engine) as session:
        return session.scalar(sa.select(sa.func.count()).select_from(SampleRow)) or 0


def test_new_reports_are_not_starved_by_a_backlog(engine: sa.Engine) -> None:
    farm = Farm(engine, returning=RETURNING)
    farm.per_s = 16.0  # a little more than the 10 a second that thirty agents need
    farm.run(20.0)
    old_lags_s = [lag_s for lag_s in farm.lags_s("returning") if lag_s > 60.0]
    assert len(old_lags_s) > RETURNING * (BACKLOG_S - 120) // 2
    new_lags_s = farm.lags_s("others")
    assert len(new_lags_s) > 5 * (AGENTS - RETURNING)
    assert max(new_lags_s) < 8.0
    assert farm.longest <= 2 * AGENTS
    assert sample_count(engine) >= RETURNING * BACKLOG_S


def test_a_collector_that_is_too_slow_for_all_gets_larger_batches_and_not_more(
    engine: sa.Engine,
) -> None:
    farm = Farm(engine)
    farm.per_s = 5.0  # half of what thirty agents ask for every 3 s
    farm.run(90.0)
    assert farm.longest <= 2 * AGENTS
    farm.lags_s("others")
    repeated = farm.noted["others"].repeat_count
    farm.run(60.0)
    assert farm.noted["others"].repeat_count - repeated < AGENTS, "each is sent about once"
    assert max(farm.lags_s("others")) < 20.0


def test_a_collector_that_stands_still_fills_the_broker_up_to_its_limit_and_loses_nothing(
    engine: sa.Engine,
) -> None:
    farm = Farm(engine)
    farm.per_s = 0.0
    farm.run(150.0)
    assert farm.longest == KEPT
    farm.per_s = 400.0
    farm.run(60.0)
    assert farm.unconfirmed() <= 10 * AGENTS
    assert sample_count(engine) >= AGENTS * 190
