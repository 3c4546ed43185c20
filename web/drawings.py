"""What was drawn of an attempt, kept for a moment: many readers look at the same one.

A live page asks again every two seconds, and forty readers do. What took long to draw, as a day of
a wide gang, is kept longer: it changes little meanwhile, and the store has others to serve.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TypeVar, cast

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

_MOST_KEPT = 32
_TIMES_KEPT = 10  # as long as it took to make: so at most a tenth of the time goes into one
_MOST_STALE_S = 10.0  # beyond, whoever asks waits like the first
_LONG_S = 0.1  # what takes longer nobody waits for a second time


@dataclass(slots=True)
class _Slot:
    lock: threading.Lock = field(default_factory=threading.Lock)
    value: object = None
    is_made: bool = False
    good_until_s: float = float("-inf")
    took_s: float = 0.0


class Drawings:
    """Values by key, of one process. Threads share it."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._slots: OrderedDict[Hashable, _Slot] = OrderedDict()

    def of(
        self,
        key: Hashable,
        make: Callable[[], _T],
        *,
        keep_s: float,
        renew: Callable[[], _T] | None = None,
    ) -> _T:
        """Return the value for a key, made at most `keep_s` ago, or ten times what it took.

        While one who asks makes it anew the others are given what was made last; the first time
        they wait for it. What `make` raises is not kept. `renew` makes the same in another thread,
        after this request: what takes long is made again by it, and who asks is given the last one.
        """
        with self._lock:
            slot = self._slots.setdefault(key, _Slot())
            self._slots.move_to_end(key)
            while len(self._slots) > _MOST_KEPT:
                self._slots.popitem(last=False)
        if slot.is_made and self._clock() < slot.good_until_s:
            return cast("_T", slot.value)
        is_recent = slot.is_made and self._clock() < slot.good_until_s + _MOST_STALE_S
        if not slot.lock.acquire(blocking=not is_recent):
            return cast("_T", slot.value)
        if is_recent and renew is not None and slot.took_s > _LONG_S:
            threading.Thread(
                target=self._renew, args=(slot, renew, keep_s), name="drawing", daemon=True
            ).start()
            return cast("_T", slot.value)
        try:
            return cast("_T", self._made(slot, make, keep_s))
        finally:
            slot.lock.release()

    def _renew(self, slot: _Slot, make: Callable[[], object], keep_s: float) -> None:
        """Make it anew; the lock was taken by who asked."""
        try:
            self._made(slot, make, keep_s)
        except Exception:
            logger.exception("a drawing could not be made again")
        finally:
            slot.lock.release()

    def _made(self, slot: _Slot, make: Callable[[], object], keep_s: float) -> object:
        began_s = self._clock()
        if began_s >= slot.good_until_s:
            slot.value = make()
            done_s = self._clock()
            slot.took_s = done_s - began_s
            slot.good_until_s = done_s + max(keep_s, _TIMES_KEPT * slot.took_s)
            slot.is_made = True
        return slot.value
