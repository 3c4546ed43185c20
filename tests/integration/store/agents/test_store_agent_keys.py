"""Keys of agents on a real database: added, replaced, and gone with everything that they held."""

from __future__ import annotations

import dataclasses
import datetime as dt

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from farm.broker.celery_app import REPORTS_TASK
from farm.collector.ingest import read_batch, read_beat, take_batches, take_beats
from farm.errors import InvalidSpec, NotFound
from farm.keys.keyring import Keyring
from farm.messages.agent_keys import KeyRecord, derive_key
from farm.messages.agents import AgentState, BeatEcho, Heartbeat
from farm.messages.envelope import seal
from farm.messages.reports import Report, ReportBatch
from farm.messages.signing import MessageDirection, sign
from farm.store.agents.agent_keys import add_agent_key, key_records, remove_agent, rotate_agent_key
from farm.store.engine import reading, writing
from farm.store.reports.late_reports import KEPT_REPORTS, late_count, set_aside
from farm.store.tables import AgentRow, SpoolPosition
from tests.factories import NOW, add_agent, add_attempt, add_job, agent_facts, refused_report

HOUR = dt.timedelta(hours=1)
LEASE = dt.timedelta(seconds=20)
FARM_KEY = bytes(32)
REPORT = Report(number=1, token=1, rank=0, kind="gossip", body={})


def add(engine: sa.Engine, agent_id: str = "a") -> KeyRecord:
    with writing(engine) as session:
        return add_agent_key(session, agent_id, now=NOW)


def records(engine: sa.Engine) -> dict[str, KeyRecord]:
    with reading(engine) as session:
        return key_records(session)


def batch(sender: str, *, number: int, of: str = "a") -> dict[str, object]:
    """An empty batch of `of`, signed by `sender` with that of its keys."""
    plain = seal(ReportBatch(agent_id=of, generation="g", reports=(REPORT,)))
    key = derive_key(FARM_KEY, sender, number)
    return sign(
        plain, [key], agent_id=sender, direction=MessageDirection.TO_SERVER, kind=REPORTS_TASK
    )


def test_an_agent_has_one_key_at_a_time_and_another_only_by_rotation(engine: sa.Engine) -> None:
    assert add(engine) == KeyRecord(agent_id="a", number=1)
    with pytest.raises(InvalidSpec, match=r"^NAME: expected a new agent.*farm agent rotate"):
        add(engine)
    with writing(engine) as session:
        rotate_agent_key(session, "a", now=NOW, grace=HOUR)
    assert records(engine) == {"a": KeyRecord(agent_id="a", number=2, previous_until=NOW + HOUR)}
    with writing(engine) as session:
        rotate_agent_key(session, "a", now=NOW, grace=dt.timedelta())
    assert records(engine) == {"a": KeyRecord(agent_id="a", number=3)}


def test_no_key_from_before_a_removal_ever_counts_again(engine: sa.Engine) -> None:
    add(engine)
    add(engine, "b")
    with writing(engine) as session:
        rotate_agent_key(session, "a", now=NOW, grace=HOUR)
        remove_agent(session, "a", now=NOW)
    assert list(records(engine)) == ["b"]
    # It may send on, so that its queues have to be emptied.
    assert Keyring(engine, FARM_KEY).agent_ids() == ["a", "b"]
    with pytest.raises(NotFound, match="farm agent list"), writing(engine) as session:
        rotate_agent_key(session, "a", now=NOW, grace=HOUR)
    assert add(engine) == KeyRecord(agent_id="a", number=3)


@pytest.mark.parametrize("name", ["", "a b", "../a", "-a", "x" * 65])
def test_what_names_no_queue_names_no_agent(engine: sa.Engine, name: str) -> None:
    with pytest.raises(InvalidSpec, match="agent_id"):
        add(engine, name)


def test_who_was_never_there_cannot_be_removed(engine: sa.Engine) -> None:
    with pytest.raises(NotFound), writing(engine) as session:
        remove_agent(session, "nobody", now=NOW)


def test_a_removed_agent_loses_its_lease_and_no_heartbeat_brings_it_back(
    engine: sa.Engine,
) -> None:
    with writing(engine) as session:
        job_id = add_job(session)
        add_agent(session, "a", lease_boot_id="boot of a")
        token = add_attempt(session, job_id, ["a"])
        remove_agent(session, "a", now=NOW)
    beat = Heartbeat(
        agent_id="a",
        boot_id="boot of a",
        counter=1_000,
        state=AgentState.BUSY,
        serving_token=token,
        highest_token=token,
        agent_time_s=NOW.timestamp(),
        echo=BeatEcho(server_time_s=NOW.timestamp(), elapsed_s=0.1),
        facts=agent_facts(),
    )
    _, _, effect = take_beats(engine, [read_beat(seal(beat))], now=NOW, lease=LEASE)[0]
    assert effect.is_stale
    with reading(engine) as session:
        agent = session.get_one(AgentRow, "a")
        assert agent.is_drained
        assert agent.lease_expires_at == NOW
    add(engine)
    later = dataclasses.replace(beat, counter=1_001)
    take_beats(engine, [read_beat(seal(later))], now=NOW, lease=LEASE)
    with reading(engine) as session:
        agent = session.get_one(AgentRow, "a")
        assert not agent.is_drained
        assert agent.lease_expires_at == NOW + LEASE


def test_the_collector_takes_what_its_sender_has_signed_and_nothing_else(
    engine: sa.Engine,
) -> None:
    add(engine)
    add(engine, "b")
    keyring = Keyring(engine, FARM_KEY)
    plain = keyring.opened(REPORTS_TASK, batch("a", number=1))
    assert take_batches(engine, [read_batch(plain)], now=NOW)[0][0] == "a"
    unsigned = seal(ReportBatch(agent_id="a", generation="g", reports=(REPORT,)))
    with pytest.raises(InvalidSpec, match=r"signed message; `farm agent add NAME`.*got None"):
        keyring.opened(REPORTS_TASK, unsigned)
    with pytest.raises(InvalidSpec, match=r"^agent_id: expected 'b', who has signed, got 'a'"):
        keyring.opened(REPORTS_TASK, batch("b", number=1, of="a"))
    for refused in (batch("a", number=2), batch("stranger", number=1), {}, None, {"signed": ""}):
        with pytest.raises(InvalidSpec):
            keyring.opened(REPORTS_TASK, refused)


def test_a_change_of_keys_counts_within_a_second(
    engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr("farm.keys.keyring.time.monotonic", lambda: clock[0])
    add(engine)
    keyring = Keyring(engine, FARM_KEY)
    keyring.opened(REPORTS_TASK, batch("a", number=1))
    with writing(engine) as session:
        rotate_agent_key(session, "a", now=dt.datetime.now(dt.UTC), grace=HOUR)
    clock[0] += 1.1
    for number in (1, 2):
        keyring.opened(REPORTS_TASK, batch("a", number=number))
    assert len(keyring.signed("a", "agent.confirm", seal(None))["signatures"]) == 2  # type: ignore[arg-type] # a table
    with writing(engine) as session:
        remove_agent(session, "a", now=NOW)
    clock[0] += 1.1
    for number in (1, 2):
        with pytest.raises(InvalidSpec, match="none, since none counts"):
            keyring.opened(REPORTS_TASK, batch("a", number=number))
    with pytest.raises(NotFound, match="has no key that counts"):
        keyring.signed("a", "agent.confirm", seal(None))


def test_a_removed_agent_leaves_none_of_what_it_has_flooded_the_store_with(
    engine: sa.Engine,
) -> None:
    with writing(engine) as session:
        for agent_id in ("a", "b"):
            add_agent(session, agent_id)
            flood(session, agent_id, count=KEPT_REPORTS + 20)
        remove_agent(session, "a", now=NOW)
        flood(session, "a", count=5, first=1000)  # what a collector had in hand
    with reading(engine) as session:
        assert late_count(session, agent_id="a") == 0
        assert late_count(session, agent_id="b") == KEPT_REPORTS + 20


def flood(session: Session, agent_id: str, *, count: int, first: int = 0) -> None:
    session.merge(
        SpoolPosition(agent_id=agent_id, generation="g", confirmed_number=1, updated_at=NOW)
    )
    session.flush()
    refused = [refused_report(number, agent_id=agent_id) for number in range(first, first + count)]
    set_aside(session, refused, now=NOW)
