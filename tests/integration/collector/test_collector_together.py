"""Messages that are stored together: each counts as if it had come alone."""

from __future__ import annotations

import dataclasses
import functools
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from farm.broker.celery_app import (
    HEARTBEAT_TASK,
    HEARTBEATS_QUEUE,
    REPORTS_QUEUE,
    REPORTS_TASK,
    agent_queue,
    make_app,
)
from farm.broker.task_message import task_text
from farm.collector.ingest import read_batch, read_beat, take_batches, take_beats
from farm.collector.main import register_tasks
from farm.collector.quotas import HEARTBEAT_QUOTAS, REPORT_QUOTAS
from farm.errors import InvalidSpec
from farm.gang.lifecycle import AttemptState
from farm.keys.keyring import Keyring
from farm.messages.agent_keys import derive_key
from farm.messages.agents import AgentState, BeatEcho, Heartbeat
from farm.messages.envelope import seal
from farm.messages.reports import Report, ReportBatch, Sample, Samples
from farm.messages.signing import MessageDirection, sign
from farm.settings.server import load_settings
from farm.store.agents.agent_keys import add_agent_key
from farm.store.engine import reading, writing
from farm.store.gangs.leases import latest_token
from farm.store.result_tables import SampleRow
from farm.store.tables import AgentRow, LateReport
from farm.values.codec import to_json
from tests.factories import NOW, add_agent, add_attempt, add_job, agent_facts, seconds
from tests.services.redis_server import RedisServer

AGENTS = ("a", "b", "c")
LEASE = seconds(20)
FARM_KEY = bytes(32)


@pytest.fixture
def tokens(engine: sa.Engine) -> dict[str, int]:
    """Running attempts of one rank each, by agent."""
    with writing(engine) as session:
        return {
            agent_id: add_attempt(
                session,
                add_job(session),
                [add_agent(session, agent_id, facts=agent_facts(machine_id=agent_id))],
                state=AttemptState.RUNNING,
            )
            for agent_id in AGENTS
        }


def batch(agent_id: str, token: int, numbers: range) -> ReportBatch:
    """Return reports whose number is the tick of their only sample."""
    reports = []
    for number in numbers:
        body = to_json(Samples(samples=(Sample(tick=number, cpu_ratio=0.5),)))
        assert isinstance(body, dict)
        reports.append(Report(number=number, token=token, rank=0, kind="samples", body=body))
    return ReportBatch(agent_id=agent_id, generation="g", reports=tuple(reports))


def stored_ticks(engine: sa.Engine) -> dict[int, list[int]]:
    query = sa.select(SampleRow.attempt_id, SampleRow.tick).order_by(SampleRow.tick)
    ticks: dict[int, list[int]] = {}
    with reading(engine) as session:
        for token, tick in session.execute(query):
            ticks.setdefault(token, []).append(tick)
    return ticks


def test_batches_of_many_agents_and_copies_of_one_are_each_confirmed(
    engine: sa.Engine, tokens: dict[str, int]
) -> None:
    first = batch("a", tokens["a"], range(1, 4))
    envelopes = [
        first,
        batch("b", tokens["b"], range(1, 3)),
        first,
        batch("a", tokens["a"], range(3, 6)),
        batch("c", tokens["a"], range(1, 3)),  # not its attempt
    ]
    taken = take_batches(engine, envelopes, now=NOW)
    assert [(agent, c.number) for agent, c, _ in taken] == [
        ("a", 5),
        ("b", 2),
        ("a", 5),
        ("a", 5),
        ("c", 2),
    ]
    assert [stored.late_count for _, _, stored in taken] == [0, 0, 0, 0, 2]
    assert stored_ticks(engine) == {tokens["a"]: [1, 2, 3, 4, 5], tokens["b"]: [1, 2]}
    with reading(engine) as session:
        assert session.scalar(sa.select(sa.func.count()).select_from(LateReport)) == 2


@pytest.mark.parametrize("database_kind", ["postgresql"])
def test_two_collectors_store_the_same_agents_batches_without_a_deadlock(
    engine: sa.Engine, tokens: dict[str, int]
) -> None:
    errors: list[BaseException] = []

    def collect(seed: int) -> None:
        rng = random.Random(seed)
        try:
            for number in range(1, 41):
                together = [batch(a, tokens[a], range(number, number + 1)) for a in AGENTS]
                rng.shuffle(together)
                take_batches(engine, together, now=NOW)
        except BaseException as error:
            errors.append(error)

    # The rows of their positions are there; two may not meet on making them.
    take_batches(engine, [batch(a, tokens[a], range(1, 2)) for a in AGENTS], now=NOW)
    threads = [threading.Thread(target=collect, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert stored_ticks(engine) == {tokens[a]: list(range(1, 41)) for a in AGENTS}


def beat(agent_id: str, counter: int, *, boot_id: str = "boot", age_s: float = 1.0) -> Heartbeat:
    return Heartbeat(
        agent_id=agent_id,
        boot_id=boot_id,
        counter=counter,
        state=AgentState.IDLE,
        serving_token=None,
        highest_token=0,
        agent_time_s=NOW.timestamp(),
        echo=BeatEcho(server_time_s=NOW.timestamp() - age_s, elapsed_s=0.0),
        facts=agent_facts(),
    )


def test_of_several_beats_of_a_life_the_last_one_counts(engine: sa.Engine) -> None:
    beats = [
        beat("a", 1),
        beat("b", 7),
        beat("a", 3),
        beat("a", 2),
        beat("a", 1, boot_id="later"),
        beat("c", 1, age_s=LEASE.total_seconds()),
    ]
    taken = take_beats(engine, beats, now=NOW, lease=LEASE)
    answered = [(agent, c.boot_id, c.counter) for agent, c, _ in taken]
    assert answered == [
        ("a", "boot", 3),
        ("b", "boot", 7),
        ("a", "later", 1),
        ("c", "boot", 1),
    ]
    assert [effect.is_stale for _, _, effect in taken] == [False, False, False, True]
    with reading(engine) as session:
        agents = {a.id: (a.boot_id, a.beat_counter) for a in session.scalars(sa.select(AgentRow))}
    assert agents == {"a": ("later", 1), "b": ("boot", 7)}


def test_of_the_tokens_that_agents_have_seen_a_damaged_one_hides_no_other(
    engine: sa.Engine,
) -> None:
    beats = [
        dataclasses.replace(beat(agent_id, 1), highest_token=token)
        for agent_id, token in (("a", 40), ("b", 2**63 - 1), ("c", 7))
    ]
    take_beats(engine, beats, now=NOW, lease=LEASE)
    with reading(engine) as session:
        assert latest_token(session) == 40


def test_no_agent_can_use_up_the_tokens(engine: sa.Engine) -> None:
    """One that has seen many more after a loss needs some beats until its jobs are taken."""
    for counter in (1, 2, 3):
        liar = dataclasses.replace(beat("a", counter), highest_token=2**62 - 1)
        take_beats(engine, [liar], now=NOW, lease=LEASE)
        with reading(engine) as session:
            latest = latest_token(session)
        assert (counter - 1) * 2**20 < latest <= counter * 2**20 + 1


@pytest.mark.parametrize("text", ["x" * 129, "\ud800"], ids=["too long", "half a pair"])
def test_what_no_column_takes_is_refused_by_name(text: str) -> None:
    """PostgreSQL would refuse all that is stored with it, and the collector try again, one by one.

    Signed or not, a stolen agent could slow all others down with one such message after another.
    """
    sent = (
        ("boot_id", read_beat, beat("a", 1), ("message", "boot_id")),
        ("facts.machine_id", read_beat, beat("a", 1), ("message", "facts", "machine_id")),
        ("generation", read_batch, batch("a", 1, range(1, 2)), ("message", "generation")),
        ("kind", read_batch, batch("a", 1, range(1, 2)), ("message", "reports", 0, "kind")),
    )
    for name, read, message, path in sent:
        envelope: Any = seal(message)
        place = envelope
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = text
        if read is read_beat and text == "\ud800":
            read(envelope)  # it has a sign in its place
            continue
        with pytest.raises(InvalidSpec, match=name.split(".")[-1]):
            read(envelope)


def test_a_beat_that_is_nested_too_deeply_is_refused_like_any_other() -> None:
    deep: Any = []
    for _ in range(900):
        deep = [deep]
    envelope: Any = seal(beat("a", 1))
    envelope["message"]["facts"]["labels"] = deep
    with pytest.raises(InvalidSpec, match=r"^facts\.labels: expected a table"):
        read_beat(envelope)


class Collector:
    """Its tasks, called as Celery would, and what it has answered since."""

    def __init__(self, engine: sa.Engine, broker: RedisServer, *, keyring: Keyring | None) -> None:
        self.app = make_app(broker.url)
        self._broker = broker
        environ = {"FARM_BROKER_URL": broker.url, "FARM_HOME": "/dev/null/farm"}
        register_tasks(self.app, engine, load_settings(environ), keyring=keyring)

    def takes(
        self, *envelopes: dict[str, object], task: str = REPORTS_TASK, queue: str = REPORTS_QUEUE
    ) -> dict[str, int]:
        """Take the first, which the others wait behind; count the answers by agent."""
        with self._broker.client() as client, client.pipeline(transaction=False) as pipe:
            for envelope in envelopes[1:]:
                pipe.lpush(queue, task_text(queue, task, envelope))
            pipe.execute()
        self.app.tasks[task](envelopes[0])
        with self._broker.client() as client:
            return {agent_id: client.llen(agent_queue(agent_id)) for agent_id in AGENTS}


def test_a_message_that_cannot_be_read_costs_those_around_it_nothing(
    engine: sa.Engine, broker: RedisServer, tokens: dict[str, int]
) -> None:
    collector = Collector(engine, broker, keyring=None)
    commits: list[sa.Connection] = []
    sa.event.listen(engine, "commit", commits.append)
    answers = collector.takes(
        seal(batch("a", tokens["a"], range(1, 3))),
        {**seal(beat("b", 1)), "message": {"agent_id": "b", "reports": []}},
        {"version": 1, "message": "nonsense"},
        seal(batch("c", tokens["c"], range(1, 2))),
    )
    assert answers == {"a": 1, "b": 0, "c": 1}
    assert len(commits) == 1
    assert stored_ticks(engine) == {tokens["a"]: [1, 2], tokens["c"]: [1]}
    collector.app.close()


def test_a_message_that_is_not_signed_costs_those_around_it_nothing(
    engine: sa.Engine, broker: RedisServer, tokens: dict[str, int]
) -> None:
    with writing(engine) as session:
        numbers = {a: add_agent_key(session, a, now=NOW).number for a in AGENTS}

    def signed(message: ReportBatch, *, by: str) -> dict[str, object]:
        key = derive_key(FARM_KEY, by, numbers[by])
        to_server = MessageDirection.TO_SERVER
        return sign(seal(message), [key], agent_id=by, direction=to_server, kind=REPORTS_TASK)

    collector = Collector(engine, broker, keyring=Keyring(engine, FARM_KEY))
    batches = {agent_id: batch(agent_id, tokens[agent_id], range(1, 3)) for agent_id in AGENTS}
    answers = collector.takes(
        signed(batches["a"], by="a"),
        seal(batches["b"]),
        signed(batches["b"], by="a"),
        signed(batches["c"], by="c"),
    )
    assert answers == {"a": 1, "b": 0, "c": 1}
    assert stored_ticks(engine) == {tokens["a"]: [1, 2], tokens["c"]: [1, 2]}
    collector.app.close()


def signer(engine: sa.Engine) -> Callable[..., dict[str, object]]:
    """Give every agent a key; return what signs a message by one of them, in its name or not."""
    with writing(engine) as session:
        numbers = {a: add_agent_key(session, a, now=NOW).number for a in AGENTS}

    def signed(
        message: object, *, by: str, kind: str, name: str | None = None
    ) -> dict[str, object]:
        key = derive_key(FARM_KEY, by, numbers[by])
        to_server = MessageDirection.TO_SERVER
        return sign(seal(message), [key], agent_id=name or by, direction=to_server, kind=kind)

    return signed


@pytest.mark.parametrize("database_kind", ["sqlite"])
def test_a_flood_of_heartbeats_by_one_account_leaves_the_others_heard(
    engine: sa.Engine, broker: RedisServer, tokens: dict[str, int]
) -> None:
    """One turn of the collector: all that one account has sent is passed, and the others answered.

    Those that claim another's name cost that one nothing of its quota.
    """
    signed = signer(engine)
    collector = Collector(engine, broker, keyring=Keyring(engine, FARM_KEY))
    beats = functools.partial(collector.takes, task=HEARTBEAT_TASK, queue=HEARTBEATS_QUEUE)
    kind = HEARTBEAT_TASK
    count = int(HEARTBEAT_QUOTAS["messages"].burst) + 20
    flood = [
        signed(dataclasses.replace(beat("a", number), boot_id=f"boot {number}"), by="a", kind=kind)
        for number in range(1, count)
    ]
    beats(*flood)
    with broker.client() as client:
        while client.llen(HEARTBEATS_QUEUE):
            beats(flood[-1])
    forged = [signed(beat("b", 1), by="a", name="b", kind=kind)] * 500
    answers = beats(*forged, *flood * 3, signed(beat("b", 1), by="b", kind=kind))
    assert answers["b"] == 1
    with broker.client() as client:
        assert client.llen(HEARTBEATS_QUEUE) == 0
    collector.app.close()


@pytest.mark.parametrize("database_kind", ["sqlite"])
def test_what_an_account_sends_beyond_its_quota_is_neither_stored_nor_confirmed(
    engine: sa.Engine, broker: RedisServer, tokens: dict[str, int]
) -> None:
    signed = signer(engine)
    collector = Collector(engine, broker, keyring=Keyring(engine, FARM_KEY))
    body: dict[str, object] = {"text": "x" * int(2 * REPORT_QUOTAS["bytes"].burst)}
    report = Report(number=1, token=999, rank=0, kind="log", body=body)
    large = ReportBatch(agent_id="a", generation="large", reports=(report,))
    signed_batch = functools.partial(signed, kind=REPORTS_TASK)
    first = collector.takes(signed_batch(large, by="a"))
    assert first["a"] == 1, "a burst takes one message, however long"
    answers = collector.takes(
        signed_batch(batch("a", tokens["a"], range(1, 3)), by="a"),
        signed_batch(batch("b", tokens["b"], range(1, 3)), by="b"),
    )
    assert answers == {"a": 1, "b": 1, "c": 0}
    assert stored_ticks(engine) == {tokens["b"]: [1, 2]}
    with reading(engine) as session:
        assert max(len(row.body) for row in session.scalars(sa.select(LateReport))) == 0
    collector.app.close()


@pytest.mark.parametrize("database_kind", ["sqlite"])
def test_without_keys_a_program_that_runs_wild_holds_back_itself_alone(
    engine: sa.Engine, broker: RedisServer, tokens: dict[str, int]
) -> None:
    collector = Collector(engine, broker, keyring=None)
    beats = functools.partial(collector.takes, task=HEARTBEAT_TASK, queue=HEARTBEATS_QUEUE)
    count = int(HEARTBEAT_QUOTAS["messages"].burst) + 20
    flood = [
        seal(dataclasses.replace(beat("a", number), boot_id=f"boot {number}"))
        for number in range(1, count)
    ]
    beats(*flood)
    with broker.client() as client:
        while client.llen(HEARTBEATS_QUEUE):
            beats(flood[-1])
    answers = beats(*flood * 3, seal(beat("b", 1)))
    assert answers["b"] == 1
    # Some is left again by the time that this runs, and far from all.
    assert answers["a"] < len(flood)
    with broker.client() as client:
        assert client.llen(HEARTBEATS_QUEUE) == 0
    collector.app.close()


def test_of_an_agent_with_many_lives_at_once_the_first_few_are_heard(engine: sa.Engine) -> None:
    beats = [dataclasses.replace(beat("a", n), boot_id=f"boot {n}") for n in range(1, 200)]
    taken = take_beats(engine, [*beats, beat("b", 1)], now=NOW, lease=LEASE)
    assert [agent for agent, _, _ in taken].count("b") == 1
    assert len(taken) < 20


@pytest.mark.parametrize("database_kind", ["sqlite"])
def test_what_cannot_be_stored_together_is_stored_one_by_one(
    engine: sa.Engine, broker: RedisServer, tokens: dict[str, int]
) -> None:
    """And what cannot be stored at all is not confirmed, and comes again."""
    with writing(engine) as session:
        session.connection().exec_driver_sql(
            "CREATE TRIGGER refusal BEFORE INSERT ON samples WHEN NEW.tick = 13 "
            "BEGIN SELECT RAISE(ABORT, 'not this one'); END"
        )
    collector = Collector(engine, broker, keyring=None)
    envelopes = [
        seal(batch("a", tokens["a"], range(1, 3))),
        seal(batch("b", tokens["b"], range(12, 15))),
        seal(batch("c", tokens["c"], range(1, 2))),
    ]
    assert collector.takes(*envelopes) == {"a": 1, "b": 0, "c": 1}
    assert stored_ticks(engine) == {tokens["a"]: [1, 2], tokens["c"]: [1]}
    with writing(engine) as session:
        session.connection().exec_driver_sql("DROP TRIGGER refusal")
    assert collector.takes(*envelopes) == {"a": 2, "b": 1, "c": 2}
    assert stored_ticks(engine)[tokens["b"]] == [12, 13, 14]
    collector.app.close()


def test_what_is_together_costs_one_transaction(engine: sa.Engine, tokens: dict[str, int]) -> None:
    commits: list[sa.Connection] = []
    sa.event.listen(engine, "commit", commits.append)
    envelopes = [batch(a, tokens[a], range(1, 20)) for a in AGENTS]
    take_batches(engine, envelopes, now=NOW)
    assert len(commits) == 1
