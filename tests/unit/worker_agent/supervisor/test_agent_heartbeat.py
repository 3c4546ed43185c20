"""When the agent beats, and what it may conclude from the server's answers."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from farm.messages.agent_keys import KEY_BYTES, AgentKey
from farm.messages.agents import BeatEcho
from farm.messages.commands import BeatConfirmed
from tests.protocol.farm import ProtocolFarm
from tests.protocol.ledger_server import LedgerServer
from worker_agent.supervisor.heartbeat import SLOW_INTERVAL_S, WARN_EVERY_S, HeartbeatSchedule


def make_schedule(*, now: float = 100.0) -> HeartbeatSchedule:
    return HeartbeatSchedule(boot_id="boot", interval_s=5.0, lease_s=20.0, now=now)


def confirmation(counter: int, *, boot_id: str = "boot") -> BeatConfirmed:
    return BeatConfirmed(boot_id=boot_id, counter=counter, server_time_s=1000.0)


def test_the_first_beat_is_due_at_once_and_counters_grow_by_one() -> None:
    schedule = make_schedule()
    assert schedule.due_in_s(now=100.0) == 0
    assert [schedule.next(now=100.0 + i) for i in range(3)] == [1, 2, 3]


def test_the_first_answer_makes_the_beat_due_that_proves_freshness() -> None:
    schedule = make_schedule()
    schedule.next(now=100.0)
    schedule.confirm(confirmation(1), now=100.3)
    assert schedule.due_in_s(now=100.3) == 0


def test_a_confirmed_beat_is_followed_by_one_an_interval_after_it() -> None:
    schedule = make_schedule()
    schedule.next(now=100.0)
    schedule.confirm(confirmation(1), now=100.1)
    schedule.next(now=100.2)
    schedule.confirm(confirmation(2), now=100.3)
    assert schedule.due_in_s(now=101.2) == pytest.approx(4.0)


def test_an_unanswered_beat_is_repeated_early() -> None:
    schedule = make_schedule()
    schedule.next(now=100.0)
    assert schedule.due_in_s(now=100.0) == pytest.approx(2.0)


def test_once_half_a_lease_has_gone_unconfirmed_haste_does_not_add_to_the_backlog() -> None:
    schedule = make_schedule()
    schedule.next(now=109.5)
    assert schedule.due_in_s(now=109.5) == pytest.approx(2.0)
    schedule.next(now=110.0)
    assert schedule.due_in_s(now=110.0) == pytest.approx(5.0)


def test_a_change_of_state_makes_a_beat_due_even_if_a_confirmation_comes_between() -> None:
    schedule = make_schedule()
    schedule.next(now=100.0)
    schedule.send_soon()
    schedule.confirm(confirmation(1), now=100.1)
    assert schedule.due_in_s(now=100.1) == 0


def test_life_counts_from_the_making_of_the_newest_confirmed_beat() -> None:
    schedule = make_schedule()
    schedule.next(now=100.0)
    schedule.next(now=104.0)
    schedule.confirm(confirmation(1), now=105.0)
    assert schedule.unconfirmed_s(now=106.0) == pytest.approx(6.0)
    schedule.confirm(confirmation(2), now=106.0)
    assert schedule.unconfirmed_s(now=106.0) == pytest.approx(2.0)


def test_answers_to_another_life_or_to_older_or_unknown_beats_count_for_nothing() -> None:
    schedule = make_schedule()
    for now in (100.0, 102.0):
        schedule.next(now=now)
    assert schedule.confirm(confirmation(2), now=103.0)
    assert not schedule.confirm(confirmation(1), now=104.0)
    assert not schedule.confirm(confirmation(2), now=104.0)
    assert not schedule.confirm(confirmation(3), now=104.0)
    assert not schedule.confirm(confirmation(2, boot_id="earlier"), now=104.0)
    assert schedule.unconfirmed_s(now=104.0) == pytest.approx(2.0)


def test_the_echo_is_the_servers_clock_and_the_age_of_its_answer() -> None:
    schedule = make_schedule()
    assert schedule.echo(now=100.0) is None
    schedule.next(now=100.0)
    schedule.confirm(confirmation(1), now=101.0)
    assert schedule.echo(now=103.5) == BeatEcho(server_time_s=1000.0, elapsed_s=2.5)


def test_beats_become_rare_while_the_server_is_silent_for_long() -> None:
    schedule = make_schedule()
    schedule.next(now=161.0)
    assert schedule.is_server_silent(now=161.0)
    assert schedule.due_in_s(now=161.0) == pytest.approx(SLOW_INTERVAL_S)
    schedule.confirm(confirmation(1), now=162.0)
    assert not schedule.is_server_silent(now=162.0)
    schedule.next(now=170.0)
    assert schedule.due_in_s(now=170.0) < 5.0


def test_a_server_that_does_not_answer_what_the_broker_takes_is_told_of_now_and_then() -> None:
    schedule = make_schedule()
    schedule.next(now=100.0)
    schedule.taken(now=100.5)
    schedule.next(now=105.0)
    schedule.taken(now=105.5)
    assert schedule.silence_s(now=119.0) is None
    assert schedule.silence_s(now=121.5) == pytest.approx(21.0)
    assert schedule.silence_s(now=122.0) is None
    assert schedule.silence_s(now=121.5 + WARN_EVERY_S) == pytest.approx(21.0 + WARN_EVERY_S)


def test_a_broker_that_takes_nothing_is_not_the_servers_silence() -> None:
    schedule = make_schedule()
    schedule.next(now=100.0)
    assert schedule.silence_s(now=1000.0) is None


def test_an_answer_ends_the_silence() -> None:
    schedule = make_schedule()
    schedule.next(now=100.0)
    schedule.taken(now=100.5)
    assert schedule.silence_s(now=130.0) is not None
    assert schedule.confirm(confirmation(1), now=131.0)
    assert schedule.silence_s(now=200.0) is None
    schedule.next(now=201.0)
    schedule.taken(now=201.0)
    assert schedule.silence_s(now=222.0) == pytest.approx(21.0)


@pytest.mark.parametrize("is_keyed", [False, True])
def test_an_agent_that_nobody_answers_says_so_in_its_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_keyed: bool
) -> None:
    farm = ProtocolFarm(LedgerServer(), tmp_path, agent_count=1)
    [agent] = farm.agents
    key = AgentKey(number=1, secret=bytes(KEY_BYTES)) if is_keyed else None
    agent.config = dataclasses.replace(agent.config, key=key)

    def warnings() -> list[str]:
        return [r.getMessage() for r in caplog.records if "has not answered" in r.getMessage()]

    with farm.running():
        for _ in range(15):
            farm.clock.now_s += 1.0
            agent.turn()
        assert warnings() == []
        for _ in range(15):
            farm.clock.now_s += 1.0
            agent.turn()
    [line] = warnings()
    assert ("is not the one" if is_keyed else "which has no key") in line
