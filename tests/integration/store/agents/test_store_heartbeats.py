"""Heartbeats on a real database: who is alive, who keeps its lease, who may be leased again."""

from __future__ import annotations

import dataclasses
import datetime as dt

import pytest
import sqlalchemy as sa

from farm.collector.ingest import read_beat, take_beats
from farm.gang.lifecycle import RankPhase
from farm.messages.agents import AgentState, Backlog, BeatEcho, Heartbeat
from farm.messages.envelope import seal
from farm.store.agents.heartbeats import BeatEffect, record_heartbeats
from farm.store.engine import reading, writing
from farm.store.tables import AgentRow
from tests.factories import NOW, add_agent, add_attempt, add_job, agent_facts, seconds

LEASE = dt.timedelta(seconds=20)
BEAT = Heartbeat(
    agent_id="a",
    boot_id="boot of a",
    counter=2,
    state=AgentState.IDLE,
    serving_token=None,
    highest_token=0,
    agent_time_s=NOW.timestamp() + 3600.0,  # its clock is wrong by an hour
    echo=BeatEcho(server_time_s=NOW.timestamp() - 5.0, elapsed_s=4.9),
    facts=agent_facts(),
)


def beat(engine: sa.Engine, message: Heartbeat, *, now: dt.datetime = NOW) -> BeatEffect:
    with writing(engine) as session:
        return record_heartbeats(session, [message], now=now, lease=LEASE)[0]


def agent(engine: sa.Engine) -> AgentRow:
    with reading(engine) as session:
        return session.get_one(AgentRow, "a")


def leased(engine: sa.Engine) -> int:
    """A leased agent whose lease has 20 s to go from NOW; return its token."""
    with writing(engine) as session:
        job_id = add_job(session)
        add_agent(session, "a", lease_boot_id="boot of a")
        return add_attempt(session, job_id, ["a"])


def test_a_new_agent_counts_as_alive_only_once_it_has_proved_its_freshness(
    engine: sa.Engine,
) -> None:
    beat(engine, dataclasses.replace(BEAT, counter=1, echo=None))
    assert agent(engine).heartbeat_at is None
    effect = beat(engine, BEAT)
    assert agent(engine).heartbeat_at == NOW
    assert effect.is_newly_free


def test_a_wrong_clock_does_not_make_an_agent_stale(engine: sa.Engine) -> None:
    beat(engine, BEAT)
    row = agent(engine)
    assert row.heartbeat_at == NOW
    assert row.clock_offset_s == pytest.approx(3600.0)


def test_what_an_agent_holds_back_is_known_until_it_says_otherwise(engine: sa.Engine) -> None:
    held = Backlog(report_count=12, byte_count=3400, oldest_s=45.0)
    beat(engine, dataclasses.replace(BEAT, backlog=held, disk_free_bytes=10**12))
    row = agent(engine)
    assert (row.backlog_count, row.backlog_bytes, row.report_lag_s) == (12, 3400, 45.0)
    assert row.disk_free_bytes == 10**12
    none = Backlog(report_count=0, byte_count=0, oldest_s=None)
    beat(engine, dataclasses.replace(BEAT, counter=3, backlog=none))
    row = agent(engine)
    assert (row.backlog_count, row.report_lag_s, row.disk_free_bytes) == (0, None, None)


def test_a_backlog_of_old_beats_renews_nothing(engine: sa.Engine) -> None:
    token = leased(engine)
    later = NOW + seconds(15)
    old = dataclasses.replace(
        BEAT, highest_token=token, echo=BeatEcho(server_time_s=NOW.timestamp(), elapsed_s=1.0)
    )
    beat(engine, old, now=later)
    assert agent(engine).lease_expires_at == NOW + LEASE


def test_a_repeated_beat_changes_nothing(engine: sa.Engine) -> None:
    beat(engine, BEAT)
    again = dataclasses.replace(BEAT, state=AgentState.LEAVING)
    assert beat(engine, again, now=NOW + seconds(1)).is_stale
    assert agent(engine).state is AgentState.IDLE


def test_the_serving_agent_renews_its_lease(engine: sa.Engine) -> None:
    token = leased(engine)
    serving = dataclasses.replace(
        BEAT, state=AgentState.BUSY, serving_token=token, highest_token=token
    )
    beat(engine, serving, now=NOW + seconds(4))
    assert agent(engine).lease_expires_at == NOW + seconds(4) + LEASE


def test_a_restarted_agent_cannot_renew_the_lease_of_the_rank_it_lost(engine: sa.Engine) -> None:
    token = leased(engine)
    for counter in (1, 2):  # not with its first beat, and not with a later one either
        restarted = dataclasses.replace(
            BEAT, boot_id="another boot", counter=counter, highest_token=token
        )
        beat(engine, restarted, now=NOW + seconds(1))
    assert agent(engine).lease_expires_at == NOW + LEASE


def test_a_restart_before_start_rank_arrived_keeps_the_lease(engine: sa.Engine) -> None:
    token = leased(engine)
    restarted = dataclasses.replace(
        BEAT, boot_id="another boot", counter=1, highest_token=token - 1
    )
    beat(engine, restarted, now=NOW + seconds(1))
    took_it = dataclasses.replace(restarted, counter=2, highest_token=token, serving_token=token)
    beat(engine, took_it, now=NOW + seconds(2))
    assert agent(engine).lease_expires_at == NOW + seconds(2) + LEASE


def test_an_agent_that_lost_its_disk_cannot_renew_the_lease_of_the_rank_it_lost(
    engine: sa.Engine,
) -> None:
    with writing(engine) as session:
        job_id = add_job(session)
        add_agent(session, "a", lease_boot_id="boot of a")
        add_attempt(session, job_id, ["a"], phase=RankPhase.PREPARED)
    for counter in (1, 2):
        wiped = dataclasses.replace(BEAT, boot_id="another boot", counter=counter, highest_token=0)
        beat(engine, wiped, now=NOW + seconds(1))
    assert agent(engine).lease_expires_at == NOW + LEASE


def test_an_agent_is_free_only_after_it_has_reported_itself_clean(engine: sa.Engine) -> None:
    with writing(engine) as session:
        add_agent(session, "a", unclean_token=9)
    unaware = dataclasses.replace(BEAT, counter=2, highest_token=8)
    assert not beat(engine, unaware).is_newly_free
    serving = dataclasses.replace(BEAT, counter=3, highest_token=9, serving_token=9)
    assert not beat(engine, serving).is_newly_free
    clean = dataclasses.replace(BEAT, counter=4, highest_token=9)
    assert beat(engine, clean).is_newly_free
    assert agent(engine).unclean_token is None


def test_the_first_beat_of_an_unproved_boot_does_not_replace_a_living_one(
    engine: sa.Engine,
) -> None:
    beat(engine, BEAT)
    ghost = dataclasses.replace(BEAT, boot_id="a boot of last week", counter=99, echo=None)
    assert beat(engine, ghost).is_stale
    assert agent(engine).boot_id == "boot of a"


def test_half_a_surrogate_in_an_agents_facts_costs_the_character_and_not_the_page(
    engine: sa.Engine,
) -> None:
    """What cannot be written as UTF-8 would make every page that shows the agent fail."""
    facts = dataclasses.replace(BEAT.facts, labels={"zone": "a\ud800"})
    take_beats(
        engine, [read_beat(seal(dataclasses.replace(BEAT, facts=facts)))], now=NOW, lease=LEASE
    )
    agent(engine).facts["labels"]["zone"].encode()


def test_a_beat_that_proves_nothing_any_more_is_answered_and_costs_the_store_nothing(
    empty_engine: sa.Engine,
) -> None:
    """After an outage thousands wait; the newest must not have to wait for them to be stored."""
    later = NOW + LEASE
    agent_id, confirmed, effect = take_beats(
        empty_engine, [read_beat(seal(BEAT))], now=later, lease=LEASE
    )[0]
    assert (agent_id, confirmed.counter) == ("a", BEAT.counter)
    assert confirmed.server_time_s == later.timestamp()  # so that the next one is fresh again
    assert effect.is_stale
