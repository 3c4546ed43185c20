"""Many at once on one store: schedulers for agents, collectors for a spool, all for the truth.

Every racer has connections of its own, as processes have.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError, OperationalError

from farm.collector.ingest import read_batch, read_beat, take_batches, take_beats
from farm.errors import Unreachable
from farm.gang.lifecycle import AttemptState, JobState
from farm.messages.agents import AgentState, BeatEcho, Heartbeat
from farm.messages.commands import Command, Go, Peers, RankAddress, Shape, StartRank, StopAttempt
from farm.messages.envelope import seal
from farm.messages.reports import (
    REPORT_NAMES,
    PeersMeasured,
    Prepared,
    Report,
    ReportBatch,
    ReportBody,
    Sample,
    Samples,
    Shaped,
)
from farm.placement.scheduling import Placement
from farm.store.engine import make_engine, reading, writing
from farm.store.gangs.leases import lease_gangs
from farm.store.result_tables import SampleRow
from farm.store.tables import AgentRow, AttemptRow, JobRow, LateReport, RankRow, SpoolPosition
from farm.values.codec import from_json, to_json
from tests.factories import (
    NOW,
    add_agent,
    add_attempt,
    add_job,
    add_sweep,
    agent_facts,
    job_spec,
    seconds,
)
from tests.stored.scheduler_round import run_round
from tests.stored.two_agents import ENDED, RULES, SOURCE, STARTED, STEPS

LEASE = seconds(20)


@contextmanager
def own_engine(url: str) -> Iterator[sa.Engine]:
    engine = make_engine(url)
    try:
        yield engine
    finally:
        engine.dispose()


def race(url: str, count: int, body: Callable[[sa.Engine, int], None]) -> None:
    """Run `body` in so many threads that begin together; what they raise fails the test."""
    surprises: list[BaseException] = []
    gate = threading.Barrier(count)

    def run(index: int) -> None:
        try:
            with own_engine(url) as engine:
                with reading(engine):  # connected before the start
                    pass
                gate.wait(timeout=60)
                body(engine, index)
        except BaseException as error:  # a thread's error must reach the test
            surprises.append(error)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
        assert not thread.is_alive()
    assert surprises == []


@pytest.mark.parametrize("wave", range(2))
def test_overlapping_gangs_are_leased_whole_and_no_agent_twice(
    engine: sa.Engine, database_url: str, wave: int
) -> None:
    agents = [f"a{i}" for i in range(6)]
    with writing(engine) as session:
        jobs = add_sweep(session, *(job_spec(world_size=3, seed=i) for i in range(24)))
        for agent_id in agents:
            add_agent(session, agent_id, facts=agent_facts(machine_id=agent_id))
    tokens: list[int] = []

    def lease(own: sa.Engine, index: int) -> None:
        # In another order for every racer, which is what makes deadlocks.
        gang = tuple(agents[(index * 5 + k * (1 + index % 2) + wave) % 6] for k in range(3))
        # Two at once, as in a round: what the first has been given is not the second's.
        second = tuple(agents[(index + k + wave) % 6] for k in range(3))
        wanted = [Placement(jobs[index], gang), Placement(jobs[(index + 7) % 24], second)]
        with suppress(Unreachable):
            with writing(own) as session:
                leased = lease_gangs(session, wanted, now=NOW, lease=LEASE)
            tokens.extend(leased.tokens.values())

    # All may meet and give way; then the next round is tried, as a scheduler does.
    for _ in range(20):
        race(database_url, 24, lease)
        if tokens:
            break
    assert len(set(tokens)) == len(tokens) >= 1
    with reading(engine) as session:
        leased = session.scalars(select(AgentRow).where(AgentRow.attempt_id.is_not(None))).all()
        ranks = session.scalars(select(RankRow)).all()
        held = session.scalars(select(JobRow).where(JobRow.state == JobState.LEASED)).all()
    assert len(leased) == len(ranks) == 3 * len(tokens)
    assert {(r.agent_id, r.attempt_id) for r in ranks} == {(a.id, a.attempt_id) for a in leased}
    assert sorted(job.attempt_id or 0 for job in held) == sorted(tokens)


def test_one_job_is_leased_once_however_many_gangs_want_it(
    engine: sa.Engine, database_url: str
) -> None:
    with writing(engine) as session:
        [job_id] = add_sweep(session)
        for index in range(24):
            add_agent(session, f"a{index}", facts=agent_facts(machine_id=f"m{index}"))
    tokens: list[int] = []

    def lease(own: sa.Engine, index: int) -> None:
        with suppress(Unreachable):
            with writing(own) as session:
                placement = Placement(job_id, (f"a{index}",))
                leased = lease_gangs(session, [placement], now=NOW, lease=LEASE)
            tokens.extend(leased.tokens.values())

    race(database_url, 24, lease)
    [token] = tokens
    with reading(engine) as session:
        assert session.get_one(JobRow, job_id).attempt_id == token
        assert session.scalar(select(func.count()).select_from(AttemptRow)) == 1
        assert session.scalar(select(func.count(AgentRow.attempt_id))) == 1


def test_collectors_racing_on_one_spool_store_every_report_once(
    engine: sa.Engine, database_url: str
) -> None:
    """A batch is delivered again while its first delivery is still being stored."""
    with writing(engine) as session:
        add_agent(session, "a")
        token = add_attempt(session, add_job(session), ["a"], state=AttemptState.RUNNING)
    confirmed: list[list[int]] = [[] for _ in range(8)]
    admitted: list[int] = []

    def collect(own: sa.Engine, index: int) -> None:
        for first in range(1, 41, 4):
            reports = tuple(
                _report(number, Samples(samples=(Sample(tick=number),)), token=token)
                for number in range(first, first + 4)
            )
            batch = seal(ReportBatch(agent_id="a", generation="g", reports=reports))
            number, count = _take(own, batch)
            confirmed[index].append(number)
            admitted.append(count)

    race(database_url, 8, collect)
    with reading(engine) as session:
        ticks = session.scalars(select(SampleRow.tick).order_by(SampleRow.tick)).all()
        [position] = session.scalars(select(SpoolPosition)).all()
        late = session.scalars(select(LateReport)).all()
    assert (list(ticks), position.confirmed_number, late) == (list(range(1, 41)), 40, [])
    assert sum(admitted) == 40
    # What an agent may forget is stored: no confirmation runs ahead of its batch's end or behind.
    for numbers in confirmed:
        assert numbers == sorted(numbers)
        assert all(number >= 4 * (i + 1) for i, number in enumerate(numbers))


def _take(engine: sa.Engine, envelope: object) -> tuple[int, int]:
    """Store a batch as the collector does, one that failed comes again.

    Returns what is confirmed, and how many reports were admitted.
    """
    for _ in range(50):
        try:
            _, confirm, stored = take_batches(engine, [read_batch(envelope)], now=NOW)[0]
        except (IntegrityError, OperationalError, Unreachable):
            continue
        return confirm.number, stored.admitted_count
    raise AssertionError("the batch was refused fifty times")


def _report(number: int, body: ReportBody, *, token: int, rank: int = 0) -> Report:
    fields = to_json(body)
    assert isinstance(fields, dict)
    return Report(number=number, token=token, rank=rank, kind=REPORT_NAMES[type(body)], body=fields)


class Agents:
    """Agents that answer each command once, however often schedulers repeat it."""

    def __init__(self, engine: sa.Engine, agent_ids: tuple[str, ...]) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._ranks: dict[tuple[str, int], int] = {}
        self._answered: set[tuple[str, int, type]] = set()
        self._numbers = dict.fromkeys(agent_ids, 0)
        self._beats = dict.fromkeys(agent_ids, 1)
        self._highest = dict.fromkeys(agent_ids, 0)
        self._serving: set[str] = set()
        self.refused: set[type] = set()

    def obey(self, agent_id: str, command: Command) -> None:
        with self._lock:
            token: int = getattr(command, "token", 0)
            if token < self._highest[agent_id]:
                self.refused.add(type(command))
                return
            self._highest[agent_id] = token
            key = (agent_id, token, type(command))
            if key not in self._answered:
                self._answered.add(key)
                self._answer(agent_id, token, command)

    def beat(self) -> None:
        """Let those that serve nothing say so, which is what makes them free again."""
        with self._lock:
            for agent_id in self._highest.keys() - self._serving:
                self._beat(agent_id)

    def _answer(self, agent_id: str, token: int, command: Command) -> None:
        if isinstance(command, StartRank):
            self._ranks[agent_id, token] = command.rank
            self._serving.add(agent_id)
            address = RankAddress(
                rank=command.rank, host="127.0.0.1", probe_port=1, trainer_ports=(20,)
            )
            prepared = Prepared(address=address, framework="tf", dataset=SOURCE, prepare_s=1.0)
            self._say(agent_id, token, prepared)
        elif isinstance(command, Peers):
            self._say(agent_id, token, PeersMeasured(rtts=()))
        elif isinstance(command, Shape):
            self._say(agent_id, token, Shaped(emulator="none", rtts=()))
        elif isinstance(command, Go):
            for body in (STARTED, STEPS, ENDED):
                self._say(agent_id, token, body)
            self._serving.discard(agent_id)

    def _say(self, agent_id: str, token: int, body: ReportBody) -> None:
        self._numbers[agent_id] += 1
        report = _report(
            self._numbers[agent_id], body, token=token, rank=self._ranks[agent_id, token]
        )
        batch = ReportBatch(agent_id=agent_id, generation="g", reports=(report,))
        _take(self._engine, seal(batch))

    def _beat(self, agent_id: str) -> None:
        self._beats[agent_id] += 1
        with reading(self._engine) as session:
            facts: Any = session.get_one(AgentRow, agent_id).facts
        beat = Heartbeat(
            agent_id=agent_id,
            boot_id=f"boot of {agent_id}",
            counter=self._beats[agent_id],
            state=AgentState.IDLE,
            serving_token=None,
            highest_token=self._highest[agent_id],
            agent_time_s=0.0,
            echo=BeatEcho(server_time_s=NOW.timestamp(), elapsed_s=0.0),
            facts=from_json(type(agent_facts()), facts),
        )
        take_beats(self._engine, [read_beat(seal(beat))], now=NOW, lease=LEASE)


def test_schedulers_at_once_lead_every_job_to_its_end_in_one_attempt_each(
    engine: sa.Engine, database_url: str
) -> None:
    """Each finds attempts half led by another, and leads them on or leaves them alone."""
    agent_ids = tuple(f"a{i}" for i in range(6))
    with writing(engine) as session:
        jobs = add_sweep(session, *(job_spec(world_size=1 + i % 3, seed=i) for i in range(12)))
        for agent_id in agent_ids:
            facts = agent_facts(machine_id=agent_id)
            add_agent(session, agent_id, facts=facts, lease_boot_id=f"boot of {agent_id}")
    agents = Agents(engine, agent_ids)
    is_done = threading.Event()

    def schedule(own: sa.Engine, index: int) -> None:
        for _ in range(400):
            if is_done.is_set():
                return
            try:
                outgoing = run_round(own, now=NOW, rules=RULES)
            except (OperationalError, Unreachable):
                continue  # as the process does: the next round starts from the store again
            for due in outgoing:
                agents.obey(due.agent_id, due.command)
            agents.beat()
            with reading(own) as session:
                left = select(func.count()).where(JobRow.state != JobState.SUCCEEDED)
                if session.scalar(left) == 0:
                    is_done.set()

    race(database_url, 3, schedule)
    with reading(engine) as session:
        states = session.execute(select(JobRow.id, JobRow.state, JobRow.attempt_count)).all()
        attempts = session.execute(select(AttemptRow.job_id, AttemptRow.state)).all()
    assert sorted(states) == [(job_id, JobState.SUCCEEDED, 1) for job_id in jobs]
    assert sorted(attempts) == [(job_id, AttemptState.SUCCEEDED) for job_id in jobs]
    # One of them may be late to tell an agent to stop what the other has ended.
    assert agents.refused <= {StopAttempt}
