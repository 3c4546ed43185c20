from __future__ import annotations

import dataclasses

import pytest

from farm.gang.admission import (
    LeasedAttempt,
    beat_age_s,
    is_clean,
    refusal_of_report,
    renews_lease,
)
from farm.gang.lifecycle import ACTIVE_ATTEMPT_STATES, AttemptState
from farm.messages.agents import AgentFacts, AgentState, BeatEcho, Hardware, Heartbeat

HARDWARE = Hardware(
    cpu_model="x",
    core_count=1,
    memory_bytes=1,
    kernel="k",
    tensorflow_version=None,
    python_version="3",
    benchfarm_version="0",
)
FACTS = AgentFacts(
    machine_id="m",
    address="127.0.0.1",
    interface="lo",
    first_port=1,
    last_port=2,
    cpus=(0,),
    hardware=HARDWARE,
)
BEAT = Heartbeat(
    agent_id="vm-0",
    boot_id="boot",
    counter=1,
    state=AgentState.IDLE,
    serving_token=None,
    highest_token=7,
    agent_time_s=0.0,
    echo=None,
    facts=FACTS,
)
LEASED = LeasedAttempt(state=AttemptState.RUNNING, is_current=True, agents={0: "vm-0", 1: "vm-1"})


@pytest.mark.parametrize("state", sorted(ACTIVE_ATTEMPT_STATES, key=str))
def test_the_leased_agent_may_report_for_its_rank_while_the_attempt_is_active(
    state: AttemptState,
) -> None:
    leased = dataclasses.replace(LEASED, state=state)
    assert refusal_of_report(leased, agent_id="vm-1", token=7, rank=1) is None


def test_another_agent_may_not_report_for_that_rank() -> None:
    reason = refusal_of_report(LEASED, agent_id="vm-0", token=7, rank=1)
    assert reason == "rank 1 of attempt 7 is leased to vm-1"


def test_a_replaced_attempt_counts_no_more_although_it_still_looks_active() -> None:
    replaced = dataclasses.replace(LEASED, is_current=False)
    assert refusal_of_report(replaced, agent_id="vm-0", token=7, rank=0) is not None


def test_an_ended_attempt_counts_no_more() -> None:
    ended = dataclasses.replace(LEASED, state=AttemptState.LOST)
    reason = refusal_of_report(ended, agent_id="vm-0", token=7, rank=0)
    assert reason == "attempt 7 is over: it is lost"


@pytest.mark.parametrize("rank", [-1, 2])
def test_a_rank_outside_the_gang_is_refused(rank: int) -> None:
    assert refusal_of_report(LEASED, agent_id="vm-0", token=7, rank=rank) is not None


def test_an_attempt_that_never_was_is_refused() -> None:
    assert refusal_of_report(None, agent_id="vm-0", token=99, rank=0) == "there is no attempt 99"


def test_freshness_needs_no_clock_but_the_servers() -> None:
    echo = BeatEcho(server_time_s=1000.0, elapsed_s=5.0)
    assert beat_age_s(echo, now_s=1005.5) == pytest.approx(0.5)
    # The same beat, found in the broker an hour later.
    assert beat_age_s(echo, now_s=4605.5) == pytest.approx(3600.5)


def test_a_beat_without_an_echo_proves_nothing() -> None:
    assert beat_age_s(None, now_s=1000.0) is None


@pytest.mark.parametrize(
    ("highest_token", "same_boot", "has_reported", "renews"),
    [
        (6, True, False, True),  # start_rank is still on its way
        (6, False, False, True),
        (0, False, True, False),  # it has lost its disk, and the rank that had reported
        (7, True, True, True),  # it serves the rank, or its last reports are on their way
        (7, False, True, False),  # it was restarted: the rank is gone
        (8, True, False, False),  # it has seen a later token than the server knows of
    ],
)
def test_only_who_took_the_rank_or_will_take_it_keeps_its_lease(
    highest_token: int, same_boot: bool, has_reported: bool, renews: bool
) -> None:
    beat = dataclasses.replace(BEAT, highest_token=highest_token)
    renewed = renews_lease(beat, token=7, same_boot=same_boot, has_reported=has_reported)
    assert renewed is renews


def test_an_agent_is_clean_when_it_serves_nothing_and_has_seen_the_token() -> None:
    assert is_clean(BEAT, unclean_token=7)
    assert not is_clean(dataclasses.replace(BEAT, serving_token=7), unclean_token=7)
    # Idle, but the command of the old attempt may still arrive and start it.
    assert not is_clean(dataclasses.replace(BEAT, highest_token=6), unclean_token=7)
