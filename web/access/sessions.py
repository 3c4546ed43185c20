"""Stores which browser sessions are signed in, so that signing out ends them."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict

MOST_SESSIONS = 10_000


class Sessions:
    """The sessions that are open, in this process's memory as their key is. Threads share it."""

    def __init__(self, *, most: int = MOST_SESSIONS) -> None:
        self._most = most
        self._open: OrderedDict[str, None] = OrderedDict()
        self._lock = threading.Lock()

    def begin(self) -> str:
        """Return the id of a new session; beyond the most, the oldest ends."""
        session_id = secrets.token_urlsafe(16)
        with self._lock:
            self._open[session_id] = None
            while len(self._open) > self._most:
                self._open.popitem(last=False)
        return session_id

    def is_open(self, session_id: object) -> bool:
        """Tell whether it was begun here, and not ended."""
        return session_id in self._open

    def end(self, session_id: object) -> None:
        """End it, if it is open."""
        with self._lock:
            self._open.pop(str(session_id), None)
