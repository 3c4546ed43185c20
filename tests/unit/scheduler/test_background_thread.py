"""A thread that repeats its work: when woken, and never more often than it may."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from farm.errors import FarmError
from farm.scheduler.background_thread import BackgroundThread

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
def running(work: Work, *, rest_ratio: float = 0.0) -> Iterator[BackgroundThread]:
    thread = BackgroundThread("work", work, again_after_s=0.0, rest_ratio=rest_ratio)
    thread.start()
    try:
        yield thread
    finally:
        work.orders.put(None)
        thread.stop()


def reach(thread: BackgroundThread, turn_count: int) -> None:
    changed = threading.Event()
    deadline = time.monotonic() + _LIMIT_S
    while thread.turn_count < turn_count:
        assert time.monotonic() < deadline
        changed.wait(0.005)


def test_waking_it_during_a_turn_adds_one_turn() -> None:
    work = Work()
    with running(work) as thread:
        work.begun.get(timeout=_LIMIT_S)
        for _ in range(3):
            thread.wake()
        work.orders.put(None)
        work.begun.get(timeout=_LIMIT_S)
        work.orders.put(None)
        reach(thread, 2)
        assert work.begun.empty()


def test_an_urgent_turn_does_not_wait_for_the_rest() -> None:
    work = Work(busy_s=0.01)
    with running(work, rest_ratio=100 * _LIMIT_S / work.busy_s) as thread:
        work.begun.get(timeout=_LIMIT_S)
        work.orders.put(None)
        reach(thread, 1)
        thread.wake()
        thread.wake(is_urgent=True)
        work.begun.get(timeout=_LIMIT_S)


def test_a_long_turn_is_followed_by_a_rest_even_if_woken() -> None:
    work = Work(busy_s=0.05)
    with running(work, rest_ratio=3.0) as thread:
        first_s = work.begun.get(timeout=_LIMIT_S)
        thread.wake()
        work.orders.put(None)
        second_s = work.begun.get(timeout=_LIMIT_S)
        assert second_s - first_s >= 0.2, "it worked for 0.05 s, and rests for three times as long"


def test_even_an_urgent_turn_leaves_processor_time_to_others() -> None:
    work = Work(busy_s=0.2)
    with running(work, rest_ratio=3.0) as thread:
        first_s = work.begun.get(timeout=_LIMIT_S)
        thread.wake(is_urgent=True)
        work.orders.put(None)
        second_s = work.begun.get(timeout=_LIMIT_S)
        assert second_s - first_s >= 0.3, "it worked for 0.2 s, and rests for half as long"


def test_a_thread_that_is_to_stop_does_not_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    work = Work(busy_s=0.01)
    cleared: list[threading.Event] = []

    class AskedBetween(threading.Event):
        """As a turn begins, and before it has forgotten what was asked of the one before."""

        def clear(self) -> None:
            super().clear()
            cleared.append(self)
            if len(cleared) == 1:
                thread.request_stop()

    with monkeypatch.context() as patch:
        patch.setattr(threading, "Event", AskedBetween)
        thread = BackgroundThread(
            "rests", work, again_after_s=0.0, rest_ratio=100 * _LIMIT_S / work.busy_s
        )
    thread.start()
    [running] = [one for one in threading.enumerate() if one.name == "rests"]
    work.begun.get(timeout=_LIMIT_S)
    work.orders.put(None)
    running.join(timeout=_LIMIT_S / 6)
    has_ended = not running.is_alive()
    thread.stop()  # which asks once more
    assert cleared
    assert has_ended
    assert work.begun.empty()


def test_what_fails_is_known_until_it_works_again() -> None:
    work = Work()
    with running(work) as thread:
        work.orders.put(FarmError("no\nstore"))
        reach(thread, 1)
        assert thread.trouble == "no store"
        work.orders.put(ZeroDivisionError("odd"))
        reach(thread, 2)
        assert thread.trouble == "ZeroDivisionError('odd')"
        work.orders.put(None)
        reach(thread, 3)
        assert thread.trouble is None
