"""Keeps values in memory, to be found again by a ticket. Threads share them.

Each kind has a limit, beyond which the oldest go, and a restart forgets all.
"""

from __future__ import annotations

import datetime as dt
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

_T = TypeVar("_T")


class Tickets(Generic[_T]):
    """Values of one kind, of one process.

    `most`: how many are kept; `most_size`: the sum of their sizes, unless one alone is larger.
    """

    def __init__(
        self,
        *,
        most: int,
        kept_for: dt.timedelta = dt.timedelta.max,
        most_size: int = 0,
        size_of: Callable[[_T], int] = lambda _: 0,
    ) -> None:
        self._most = most
        self._kept_for = kept_for
        self._most_size = most_size
        self._size_of = size_of
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, tuple[_T, dt.datetime]] = OrderedDict()

    def keep(self, value: _T, *, now: dt.datetime) -> str:
        """Keep a value, and return the ticket that it is found by."""
        ticket = secrets.token_urlsafe(24)
        with self._lock:
            self._kept[ticket] = value, now
            size = sum(self._size_of(kept) for kept, _ in self._kept.values())
            while len(self._kept) > self._most or (size > self._most_size and len(self._kept) > 1):
                _, (oldest, _) = self._kept.popitem(last=False)
                size -= self._size_of(oldest)
        return ticket

    def find(self, ticket: str, *, now: dt.datetime) -> _T | None:
        """Return the value; None: it was never there, too long ago, or before too many others."""
        with self._lock:
            value, kept_at = self._kept.get(ticket, (None, now))
            if now - kept_at > self._kept_for:
                del self._kept[ticket]
                return None
        return value

    def forget(self, ticket: str) -> None:
        """Let go of a value, if it is kept."""
        with self._lock:
            self._kept.pop(ticket, None)
