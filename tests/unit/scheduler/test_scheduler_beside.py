"""A thread that does its work again and again: when rung for, and no more than it may."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from farm.errors import FarmError
from farm.scheduler.beside import Beside

_LIMIT_S = 60.0
_NEVER_S = 3600.0


class Work:
    """Tells of each turn when it begins, and goes on when told what to do.

    `busy_s`: the processor time that each takes at least.
    """

    def __init__(self, *, busy_s: float = 0.0) -> None:
        self.busy_s = busy_s
        self.begun: queue.Queue[float] = queue.Queue()
        self.orders: queue.Queue[Exception | None] = queue.Queue()

    def __call__(self) -> float:
        self.begun.put(time.monotonic())
        until_s = time.thread_time() + self.busy_s
        while time.thread_time() < until_s:
            pass
        order = self.orders.get(timeout=_LIMIT_S)
        if order is not None:
            raise order
        return _NEVER_S


@contextmanager
def running(work: Work, *, rest_ratio: float = 0.0) -> Iterator[Beside]:
    beside = Beside("work", work, again_after_s=0.0, rest_ratio=rest_ratio)
    beside.start()
    try:
        yield beside
    finally:
        work.orders.put(None)
        beside.stop()


def reach(beside: Beside, turn_count: int) -> None:
    changed = threading.Event()
    deadline = time.monotonic() + _LIMIT_S
    while beside.turn_count < turn_count:
        assert time.monotonic() < deadline
        changed.wait(0.005)


def test_rings_during_a_turn_are_one_more_turn() -> None:
    work = Work()
    with running(work) as beside:
        work.begun.get(timeout=_LIMIT_S)
        for _ in range(3):
            beside.ring()
        work.orders.put(None)
        work.begun.get(timeout=_LIMIT_S)
        work.orders.put(None)
        reach(beside, 2)
        assert work.begun.empty()


def test_who_is_in_a_hurry_does_not_wait_for_the_rest() -> None:
    work = Work(busy_s=0.01)
    with running(work, rest_ratio=100 * _LIMIT_S / work.busy_s) as beside:
        work.begun.get(timeout=_LIMIT_S)
        work.orders.put(None)
        reach(beside, 1)
        beside.ring()
        beside.ring(in_a_hurry=True)
        work.begun.get(timeout=_LIMIT_S)


def test_a_turn_that_worked_long_is_followed_by_a_rest_whoever_rings() -> None:
    work = Work(busy_s=0.05)
    with running(work, rest_ratio=3.0) as beside:
        first_s = work.begun.get(timeout=_LIMIT_S)
        beside.ring()
        work.orders.put(None)
        second_s = work.begun.get(timeout=_LIMIT_S)
        assert second_s - first_s >= 0.2, "it worked for 0.05 s, and rests for three times as long"


def test_even_who_is_in_a_hurry_leaves_something_to_others() -> None:
    work = Work(busy_s=0.2)
    with running(work, rest_ratio=3.0) as beside:
        first_s = work.begun.get(timeout=_LIMIT_S)
        beside.ring(in_a_hurry=True)
        work.orders.put(None)
        second_s = work.begun.get(timeout=_LIMIT_S)
        assert second_s - first_s >= 0.3, "it worked for 0.2 s, and rests for half as long"


def test_nobody_rests_who_is_to_stop() -> None:
    work = Work(busy_s=0.01)
    beside = Beside("rests", work, again_after_s=0.0, rest_ratio=100 * _LIMIT_S / work.busy_s)

    class AskedBetween(threading.Event):
        """As a turn begins, and before it has forgotten what was asked of the one before."""

        def clear(self) -> None:
            super().clear()
            beside.ask_to_stop()

    beside._bell = AskedBetween()
    beside.start()
    work.begun.get(timeout=_LIMIT_S)
    work.orders.put(None)
    beside._thread.join(timeout=_LIMIT_S / 6)
    has_ended = not beside._thread.is_alive()
    beside.stop()  # which asks once more
    assert has_ended
    assert work.begun.empty()


def test_what_fails_is_known_until_it_works_again() -> None:
    work = Work()
    with running(work) as beside:
        work.orders.put(FarmError("no\nstore"))
        reach(beside, 1)
        assert beside.trouble == "no store"
        work.orders.put(ZeroDivisionError("odd"))
        reach(beside, 2)
        assert beside.trouble == "ZeroDivisionError('odd')"
        work.orders.put(None)
        reach(beside, 3)
        assert beside.trouble is None
