"""When the agent beats, and what it may conclude from the server's answers."""

from __future__ import annotations

import pytest

from farm.core.agents import BeatEcho
from farm.core.commands import BeatConfirmed
from worker_agent.heartbeat import SLOW_INTERVAL_S, Pulse


def make_pulse(*, now: float = 100.0) -> Pulse:
    return Pulse(boot_id="boot", interval_s=5.0, lease_s=20.0, now=now)


def confirmation(counter: int, *, boot_id: str = "boot") -> BeatConfirmed:
    return BeatConfirmed(boot_id=boot_id, counter=counter, server_time_s=1000.0)


def test_the_first_beat_is_due_at_once_and_counters_grow_by_one() -> None:
    pulse = make_pulse()
    assert pulse.due_in_s(now=100.0) == 0
    assert [pulse.next(now=100.0 + i) for i in range(3)] == [1, 2, 3]


def test_the_first_answer_makes_the_beat_due_that_proves_freshness() -> None:
    pulse = make_pulse()
    pulse.next(now=100.0)
    pulse.confirm(confirmation(1), now=100.3)
    assert pulse.due_in_s(now=100.3) == 0


def test_a_confirmed_beat_is_followed_by_one_an_interval_after_it() -> None:
    pulse = make_pulse()
    pulse.next(now=100.0)
    pulse.confirm(confirmation(1), now=100.1)
    pulse.next(now=100.2)
    pulse.confirm(confirmation(2), now=100.3)
    assert pulse.due_in_s(now=101.2) == pytest.approx(4.0)


def test_an_unanswered_beat_is_repeated_early() -> None:
    pulse = make_pulse()
    pulse.next(now=100.0)
    assert pulse.due_in_s(now=100.0) == pytest.approx(2.0)


def test_once_half_a_lease_has_gone_unconfirmed_haste_does_not_add_to_the_backlog() -> None:
    pulse = make_pulse()
    pulse.next(now=109.5)
    assert pulse.due_in_s(now=109.5) == pytest.approx(2.0)
    pulse.next(now=110.0)
    assert pulse.due_in_s(now=110.0) == pytest.approx(5.0)


def test_a_change_of_state_makes_a_beat_due_even_if_a_confirmation_comes_between() -> None:
    pulse = make_pulse()
    pulse.next(now=100.0)
    pulse.hasten()
    pulse.confirm(confirmation(1), now=100.1)
    assert pulse.due_in_s(now=100.1) == 0


def test_life_counts_from_the_making_of_the_newest_confirmed_beat() -> None:
    pulse = make_pulse()
    pulse.next(now=100.0)
    pulse.next(now=104.0)
    pulse.confirm(confirmation(1), now=105.0)
    assert pulse.unconfirmed_s(now=106.0) == pytest.approx(6.0)
    pulse.confirm(confirmation(2), now=106.0)
    assert pulse.unconfirmed_s(now=106.0) == pytest.approx(2.0)


def test_answers_to_another_life_or_to_older_or_unknown_beats_count_for_nothing() -> None:
    pulse = make_pulse()
    for now in (100.0, 102.0):
        pulse.next(now=now)
    assert pulse.confirm(confirmation(2), now=103.0)
    assert not pulse.confirm(confirmation(1), now=104.0)
    assert not pulse.confirm(confirmation(2), now=104.0)
    assert not pulse.confirm(confirmation(3), now=104.0)
    assert not pulse.confirm(confirmation(2, boot_id="earlier"), now=104.0)
    assert pulse.unconfirmed_s(now=104.0) == pytest.approx(2.0)


def test_the_echo_is_the_servers_clock_and_the_age_of_its_answer() -> None:
    pulse = make_pulse()
    assert pulse.echo(now=100.0) is None
    pulse.next(now=100.0)
    pulse.confirm(confirmation(1), now=101.0)
    assert pulse.echo(now=103.5) == BeatEcho(server_time_s=1000.0, elapsed_s=2.5)


def test_beats_become_rare_while_the_server_is_silent_for_long() -> None:
    pulse = make_pulse()
    pulse.next(now=161.0)
    assert pulse.is_server_silent(now=161.0)
    assert pulse.due_in_s(now=161.0) == pytest.approx(SLOW_INTERVAL_S)
    pulse.confirm(confirmation(1), now=162.0)
    assert not pulse.is_server_silent(now=162.0)
    pulse.next(now=170.0)
    assert pulse.due_in_s(now=170.0) < 5.0
