"""What a rank's steps have exchanged."""

from __future__ import annotations

import pytest

from farm.trainers.tensorflow.sessions.engine import LARGEST_STALENESS, ExchangeCount


def test_times_are_means_over_steps_and_updates_are_counted_by_their_staleness() -> None:
    count = ExchangeCount(is_synchronous=False)
    for push_s, staleness in ((1.0, 0), (3.0, 2), (2.0, 2)):
        count.add(push_s=push_s, pull_s=2 * push_s, is_update=True, staleness=staleness)
    exchange = count.take()
    assert (exchange.push_s, exchange.pull_s) == pytest.approx((2.0, 4.0))
    assert exchange.update_count == 3
    assert exchange.staleness_counts == (1, 0, 2)


def test_taking_counts_anew() -> None:
    count = ExchangeCount(is_synchronous=False)
    count.add(push_s=1.0, pull_s=1.0, is_update=True, staleness=5)
    count.take()
    exchange = count.take()
    assert exchange.update_count == 0
    assert exchange.staleness_counts == ()
    assert exchange.push_s is None
    assert exchange.pull_s is None


def test_a_synchronous_exchange_has_no_staleness_and_a_forward_pass_no_update() -> None:
    count = ExchangeCount(is_synchronous=True)
    count.add(push_s=0.0, pull_s=1.0, is_update=False)
    exchange = count.take()
    assert exchange.update_count == 0
    assert exchange.pull_s == 1.0
    assert exchange.staleness_counts is None


def test_a_rank_that_was_held_up_makes_no_endless_list() -> None:
    count = ExchangeCount(is_synchronous=False)
    count.add(push_s=0.0, pull_s=0.0, is_update=True, staleness=10**6)
    counts = count.take().staleness_counts
    assert counts is not None
    assert len(counts) == LARGEST_STALENESS + 1
    assert counts[-1] == 1
