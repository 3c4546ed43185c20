"""Keeps files between their preview and their import, so that they are uploaded once.

In memory, few and for minutes: what is gone is uploaded again.
"""

from __future__ import annotations

import datetime as dt
import secrets
import threading
from collections import OrderedDict
from dataclasses import dataclass

_MOST_KEPT = 8
_KEPT_FOR = dt.timedelta(minutes=30)


@dataclass(frozen=True, slots=True)
class Upload:
    """`name`: of the file, as its sender calls it."""

    content: bytes
    name: str
    at: dt.datetime


class Uploads:
    """The files of one process. Threads share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, Upload] = OrderedDict()

    def keep(self, upload: Upload) -> str:
        """Keep a file, and return the ticket that it is found by."""
        ticket = secrets.token_urlsafe(24)
        with self._lock:
            self._kept[ticket] = upload
            while len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
        return ticket

    def find(self, ticket: str, *, now: dt.datetime) -> Upload | None:
        """Return the file; None: it was never there, too long ago, or before too many others."""
        with self._lock:
            upload = self._kept.get(ticket)
            if upload is not None and now - upload.at > _KEPT_FOR:
                del self._kept[ticket]
                upload = None
        return upload

    def forget(self, ticket: str) -> None:
        """Let go of a file that was imported."""
        with self._lock:
            self._kept.pop(ticket, None)
