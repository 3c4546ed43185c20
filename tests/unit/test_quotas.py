"""What one account may send: a burst at once and so much a minute, whatever others send."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farm.collector.intake import row_count
from farm.collector.quotas import HEARTBEATS, REPORTS, Quota, Quotas
from farm.core.reports import Report, ReportBatch


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_an_account_that_has_used_its_burst_is_held_back_until_some_is_left(clock: Clock) -> None:
    quotas = Quotas({"messages": Quota(3, 60)}, clock=clock)
    for _ in range(3):
        assert quotas.exhausted("a") is None
        quotas.charge("a", messages=1)
    assert quotas.exhausted("a") == "messages"
    assert quotas.exhausted("b") is None
    clock.now_s += 1.5
    assert quotas.exhausted("a") is None
    assert quotas.dropped() == {"a": 1}
    clock.now_s += 121
    assert quotas.dropped() == {}


def test_one_that_took_much_more_than_it_had_waits_until_it_is_made_up_for(clock: Clock) -> None:
    quotas = Quotas({"messages": Quota(10, 60), "bytes": Quota(100, 60)}, clock=clock)
    quotas.charge("a", messages=1, bytes=160)
    clock.now_s += 59
    assert quotas.exhausted("a") == "bytes"
    clock.now_s += 2
    assert quotas.exhausted("a") is None
    assert quotas.limit("bytes") == "60 bytes a minute"


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(0, 3 * 2**20)), min_size=1, max_size=60))
def test_no_series_of_messages_brings_in_more_than_the_quota(
    sent: list[tuple[float, float]],
) -> None:
    clock = Clock()
    quotas = Quotas({"bytes": REPORTS["bytes"]}, clock=clock)
    taken, largest = 0.0, max(size for _, size in sent)
    for pause_s, size in sent:
        clock.now_s += pause_s
        if quotas.exhausted("a") is None:
            quotas.charge("a", bytes=size)
            taken += size
    quota = REPORTS["bytes"]
    assert taken <= quota.burst + clock.now_s / 60 * quota.per_minute + largest


def test_ten_minutes_of_the_worst_bring_in_less_than_fifty_megabytes() -> None:
    size = REPORTS["bytes"].burst + 10 * REPORTS["bytes"].per_minute
    assert size < 50 * 2**20


def test_an_honest_agent_is_far_below_every_quota() -> None:
    """A beat each second, and batches of three seconds, as they are signed: 4.1 kB."""
    assert HEARTBEATS["messages"].per_minute >= 4 * 60
    assert REPORTS["bytes"].per_minute > 20 * 20 * 4100
    hour_s, reports_a_second = 3600, 3
    assert REPORTS["rows"].burst > hour_s * reports_a_second


def test_rows_are_counted_by_what_a_batch_holds() -> None:
    bodies: list[dict[str, object]] = [{"samples": [{"tick": 1}, {"tick": 2}]}, {"samples": 7}, {}]
    reports = tuple(
        Report(number=number, token=1, rank=0, kind="samples", body=body)
        for number, body in enumerate(bodies, start=1)
    )
    assert row_count(ReportBatch(agent_id="a", generation="g", reports=reports)) == 5


def test_who_is_silent_for_long_is_forgotten(clock: Clock) -> None:
    quotas = Quotas({"messages": Quota(1, 1)}, clock=clock)
    for number in range(100):
        quotas.charge(f"a{number}", messages=1)
    clock.now_s += 601
    quotas.charge("b", messages=1)
    assert len(quotas._accounts) == 1


def test_of_names_that_are_only_claimed_so_many_new_ones_are_heard(clock: Clock) -> None:
    quotas = Quotas({"messages": Quota(5, 60)}, names=Quota(2, 60), clock=clock)
    for name in ("a", "b"):
        assert quotas.exhausted(name) is None
        quotas.charge(name, messages=1)
    assert quotas.exhausted("c") == "new names"
    assert quotas.limit("new names") == "60 new names a minute"
    assert quotas.exhausted("a") is None, "those that are known are heard all the same"
    clock.now_s += 1.5
    assert quotas.exhausted("c") is None
