"""When bytes come out of an emulated link."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from farm.configuration.spec import NetworkProfile
from worker_agent.network.delay_line import DelayLine, Pipe, StreamEnd

NOW = 100.0


def line(
    profile: NetworkProfile,
    *,
    pipe: Pipe | None = None,
    not_before: float = 0.0,
    uniform: Callable[[float, float], float] = lambda low, high: high,
) -> DelayLine:
    own = pipe or Pipe(profile.bandwidth_bytes_per_s)
    return DelayLine(profile, own, not_before=not_before, uniform=uniform)


def test_bytes_come_out_after_the_delay_and_not_before() -> None:
    delayed = line(NetworkProfile(one_way_delay_s=0.02))
    delayed.put(b"a", now=NOW)

    assert delayed.due_at == pytest.approx(NOW + 0.02)
    assert delayed.take(now=NOW + 0.0199) is None
    assert delayed.take(now=NOW + 0.0201) == b"a"
    assert delayed.due_at is None


def test_nothing_comes_out_before_the_connection_would_stand() -> None:
    delayed = line(NetworkProfile(one_way_delay_s=0.02), not_before=NOW + 0.06)
    delayed.put(b"a", now=NOW)

    assert delayed.due_at == pytest.approx(NOW + 0.06)


def test_the_end_and_a_reset_travel_as_long_as_bytes_and_behind_them() -> None:
    delayed = line(NetworkProfile(one_way_delay_s=0.02))
    delayed.put(b"a", now=NOW)
    delayed.put(StreamEnd.END, now=NOW + 0.01)

    assert delayed.take(now=NOW + 0.025) == b"a"
    assert delayed.take(now=NOW + 0.025) is None
    assert delayed.take(now=NOW + 0.031) is StreamEnd.END


def test_jitter_reorders_nothing() -> None:
    draws = iter([0.01, -0.01])
    delayed = line(
        NetworkProfile(one_way_delay_s=0.02, jitter_s=0.01), uniform=lambda *_: next(draws)
    )
    delayed.put(b"late", now=NOW)
    delayed.put(b"early", now=NOW)

    assert delayed.take(now=NOW + 0.02) is None
    assert [delayed.take(now=NOW + 0.0301) for _ in range(2)] == [b"late", b"early"]


def test_jitter_is_drawn_between_its_two_ends() -> None:
    ranges: list[tuple[float, float]] = []
    delayed = line(
        NetworkProfile(one_way_delay_s=0.02, jitter_s=0.005),
        uniform=lambda low, high: ranges.append((low, high)) or 0.0,  # type: ignore[func-returns-value]
    )
    delayed.put(b"a", now=NOW)

    assert ranges == [(-0.005, 0.005)]


def test_the_bandwidth_is_shared_by_all_connections_to_a_peer() -> None:
    profile = NetworkProfile(one_way_delay_s=0.01, bandwidth_bytes_per_s=1e6)
    pipe = Pipe(1e6)
    one, two = line(profile, pipe=pipe), line(profile, pipe=pipe)
    one.put(bytes(100_000), now=NOW)
    two.put(bytes(100_000), now=NOW)

    assert one.due_at == pytest.approx(NOW + 0.11)
    assert two.due_at == pytest.approx(NOW + 0.21)


def test_a_pause_saves_no_bandwidth_for_later() -> None:
    pipe = Pipe(1e6)
    pipe.send(1000, now=NOW)

    assert pipe.send(1000, now=NOW + 60) == pytest.approx(NOW + 60.001)


@pytest.mark.parametrize("bandwidth", [None, 1e4, 1e6, 1e9])
@pytest.mark.parametrize("one_way_delay_s", [0.0, 0.04, 10.0])
def test_a_line_takes_what_the_link_holds_and_then_no_more(
    one_way_delay_s: float, bandwidth: float | None
) -> None:
    delayed = line(NetworkProfile(one_way_delay_s=one_way_delay_s, bandwidth_bytes_per_s=bandwidth))
    taken = 0
    while not delayed.is_full:
        delayed.put(bytes(delayed.read_bytes), now=NOW)
        taken += delayed.read_bytes

    assert taken >= min(16e6, (bandwidth or 1.25e9) * one_way_delay_s)
    assert taken <= 33 * 2**20
    while delayed.take(now=float("inf")) is not None:
        pass
    assert not delayed.is_full


def test_what_the_receiver_did_not_take_comes_out_first() -> None:
    delayed = line(NetworkProfile(one_way_delay_s=0.02))
    delayed.put(b"abc", now=NOW)
    delayed.put(b"d", now=NOW)
    delayed.take(now=NOW + 1)
    delayed.put_back(b"bc")

    assert [delayed.take(now=NOW + 1) for _ in range(3)] == [b"bc", b"d", None]
