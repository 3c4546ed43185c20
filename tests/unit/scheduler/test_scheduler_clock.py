"""The scheduler's clock: what counts as a step, and what follows a step before a reading."""

from __future__ import annotations

import datetime as dt

import pytest

from farm.scheduler.main import StepCorrectingClock


class Clocks:
    """A machine's two clocks, and what was followed of them."""

    def __init__(self) -> None:
        self.wall_s, self.monotonic_s = 1_000_000.0, 50.0
        self.followed: list[tuple[dt.datetime, float]] = []
        self.store_is_away = False
        self.clock = StepCorrectingClock(
            self._follow, wall=lambda: self.wall_s, monotonic=lambda: self.monotonic_s
        )

    def passes(self, seconds: float, *, step_s: float = 0.0) -> dt.datetime:
        self.monotonic_s += seconds
        self.wall_s += seconds + step_s
        return self.clock.now()

    def _follow(self, now: dt.datetime, step_s: float) -> None:
        if self.store_is_away:
            raise ConnectionError
        self.followed.append((now, round(step_s, 6)))


def test_what_was_stored_before_the_start_is_followed_once() -> None:
    clocks = Clocks()
    for _ in range(3):
        clocks.passes(1.0)
    assert [step_s for _, step_s in clocks.followed] == [0.0]


def test_a_clock_that_is_slewed_has_not_stepped() -> None:
    clocks = Clocks()
    for _ in range(10_000):
        clocks.passes(1.0, step_s=0.0005)
    assert len(clocks.followed) == 1


@pytest.mark.parametrize("step_s", [-3600.0, -1.5, 1.5, 86400.0])
def test_a_step_is_followed_before_its_time_is_told(
    step_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    clocks = Clocks()
    clocks.passes(1.0)
    now = clocks.passes(1.0, step_s=step_s)
    assert clocks.followed[1:] == [(now, step_s)]
    assert ("set back by" if step_s < 0 else "set forward by") in caplog.text
    clocks.passes(1.0)
    assert len(clocks.followed) == 2


def test_a_step_that_could_not_be_followed_is_followed_next_time() -> None:
    clocks = Clocks()
    clocks.passes(1.0)
    clocks.store_is_away = True
    with pytest.raises(ConnectionError):
        clocks.passes(1.0, step_s=-60.0)
    clocks.store_is_away = False
    now = clocks.passes(1.0)
    assert clocks.followed[1:] == [(now, -60.0)]
