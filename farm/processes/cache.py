"""A cache of slowly computed values, for threads that request the same value at once.

The first thread that requests a value computes it, and concurrent threads wait for it. The caller
decides how long a value is valid: while a stamp stays the same, for a second, or for ten times the
time that the computation took. Forty viewers of a live page, with a request every second or two,
must not load the store.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar, cast

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

_TIMES_KEPT = 10  # as long as it took to make: so at most a tenth of the time goes into one
_MOST_STALE_S = 10.0  # beyond, every caller waits like the first
_LONG_S = 0.03  # what takes longer nobody waits for a second time
# For a value to be computed. A waiting caller may hold one of the few connections to the store: so
# longer than anything takes as a rule, and shorter than the wait for a connection.
_PATIENCE_S = 5.0
# Threads that renew go one after another: requests share the interpreter with only one of them.
_TURN = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedValue(Generic[_T]):
    """A value, when its making began, by the monotonic clock, and how long that took."""

    value: _T
    begun_s: float
    took_s: float

    @property
    def done_s(self) -> float:
        """When it was there."""
        return self.begun_s + self.took_s


@dataclass(slots=True)
class _Slot:
    """One key's. Its lock is held by who makes."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    made: CachedValue[object] | None = None


class Cache:
    """Values by key: the `most` that were asked for last. Threads share it.

    An error is raised to the thread that made the value, and not kept.
    """

    def __init__(
        self,
        *,
        most: int,
        clock: Callable[[], float] = time.monotonic,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        self._most = most
        self._patience_s = patience_s
        self._clock = clock
        self._lock = threading.Lock()
        self._turn = threading.Lock()  # of threads that make what nobody waits for
        self._slots: OrderedDict[Hashable, _Slot] = OrderedDict()

    def get(
        self,
        key: Hashable,
        make: Callable[[_T | None], _T],
        *,
        is_good: Callable[[CachedValue[_T]], bool],
    ) -> _T:
        """Return a valid value, or compute one: `make` receives the last, outdated value.

        A thread that has waited in vain for another one makes the value itself.
        """
        slot = self._slot(key)
        made = cast("CachedValue[_T] | None", slot.made)
        if made is not None and is_good(made):
            return made.value
        has_lock = slot.lock.acquire(timeout=self._patience_s)
        try:
            made = cast("CachedValue[_T] | None", slot.made)
            if made is not None and is_good(made):
                return made.value
            before = None if made is None else made.value
            return self._put(slot, lambda: make(before))
        finally:
            if has_lock:
                slot.lock.release()

    def for_a_while(
        self,
        key: Hashable,
        make: Callable[[], _T],
        *,
        keep_s: float | Callable[[_T], float],
        renew: Callable[[], _T] | None = None,
        is_still_so: Callable[[_T], bool] = lambda _: False,
    ) -> _T:
        """Return the cached value for `keep_s`, or ten times its computing time if longer.

        `keep_s`: a number, or a function of the value.

        While one caller computes the value again, the others get the last one; the first time they
        wait for it. `renew` computes the same in another thread, after this request: values that
        take long are renewed by it, and callers get the last one. `is_still_so`: whether a value
        is valid however old it is.
        """

        def good_until_s(made: CachedValue[_T]) -> float:
            least_s = keep_s(made.value) if callable(keep_s) else keep_s
            return made.done_s + max(least_s, _TIMES_KEPT * made.took_s)

        def is_good(made: CachedValue[_T]) -> bool:
            return self._clock() < good_until_s(made) or is_still_so(made.value)

        slot = self._slot(key)
        made = cast("CachedValue[_T] | None", slot.made)
        is_recent = made is not None and self._clock() < good_until_s(made) + _MOST_STALE_S
        if made is None or is_good(made) or not is_recent:
            return self.get(key, lambda _: make(), is_good=is_good)
        if not slot.lock.acquire(blocking=False):
            return made.value
        if renew is None or made.took_s <= _LONG_S:
            try:
                return self._put(slot, make)
            finally:
                slot.lock.release()
        self._start(key, slot, renew, turn=_TURN, has_turn=False)
        return made.value

    def at_once(
        self,
        key: Hashable,
        make: Callable[[], _T],
        *,
        is_good: Callable[[CachedValue[_T]], bool],
        rest_s: float,
    ) -> _T | None:
        """Return the last value, None before the first, and never wait.

        A value that is not good is made again in another thread, at the earliest `rest_s` after the
        last time, and of this cache one at a time: later calls start the others.
        """
        with self._lock:  # a key takes no place before its value is made
            slot = self._slots.get(key, _Slot())
        made = cast("CachedValue[_T] | None", slot.made)
        is_due = made is None or not (is_good(made) or self._clock() < made.done_s + rest_s)
        if is_due and self._turn.acquire(blocking=False):
            if slot.lock.acquire(blocking=False):
                self._start(key, slot, make, turn=self._turn, has_turn=True)
            else:
                self._turn.release()
        return None if made is None else made.value

    def _slot(self, key: Hashable) -> _Slot:
        with self._lock:
            return self._keep(key, self._slots.get(key, _Slot()))

    def _keep(self, key: Hashable, slot: _Slot) -> _Slot:
        self._slots[key] = slot
        self._slots.move_to_end(key)
        while len(self._slots) > self._most:
            self._slots.popitem(last=False)
        return slot

    def _start(
        self,
        key: Hashable,
        slot: _Slot,
        renew: Callable[[], object],
        *,
        turn: threading.Lock,
        has_turn: bool,
    ) -> None:
        """Compute the value in another thread, which releases the slot's lock and the turn."""

        def compute() -> None:
            is_in_turn = has_turn or turn.acquire(timeout=self._patience_s)
            try:
                self._put(slot, renew)
                with self._lock:
                    self._keep(key, slot)
            except Exception:
                logger.exception("a cached value could not be computed again")
            finally:
                if is_in_turn:
                    turn.release()
                slot.lock.release()

        try:
            threading.Thread(target=compute, name="cache", daemon=True).start()
        except RuntimeError:  # no thread can be started: the next caller tries again
            if has_turn:
                turn.release()
            slot.lock.release()

    def _put(self, slot: _Slot, make: Callable[[], _T]) -> _T:
        begun_s = self._clock()
        value = make()
        slot.made = CachedValue(value=value, begun_s=begun_s, took_s=self._clock() - begun_s)
        return value
