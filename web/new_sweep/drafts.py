"""Keeps previewed sweeps until they are sent, and stops a form from being sent twice.

Both are in the memory of the one server process. A restart forgets them. It also replaces the key
of the sessions, so a form that was open before the restart cannot be sent a second time either.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from farm.submission import SubmittedSweep
from web.new_sweep.form import Fields
from web.new_sweep.preview import Summary

_MOST_SENT = 2000
_PATIENCE_S = 60.0  # for the same form, which another request is just sending


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A sweep that may be enqueued. `fields`: of the form it came from, None: it was a file."""

    text: str
    fields: Fields | None
    summary: Summary

    def size(self) -> int:
        """Return the characters of its text."""
        return len(self.text)


class Sent:
    """Which forms were sent, and what came of each. Threads share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._done: OrderedDict[str, Future[SubmittedSweep]] = OrderedDict()

    def once(
        self, key: str, text: str, *, enqueue: Callable[[], SubmittedSweep]
    ) -> tuple[SubmittedSweep, bool]:
        """Enqueue what a form holds, unless that was done; return the sweep, and whether it was.

        A form has a `key` of its own, so a second press, a reload, or a press after going back
        sends the same key with the same text. With another text it is another sweep. Without a
        key every request counts.

        Raises what `enqueue` raises; then the form may be sent again.
        """
        if not key:
            return enqueue(), False
        name = hashlib.sha256(f"{key}\0{text}".encode(errors="backslashreplace")).hexdigest()
        with self._lock:
            done = self._done.get(name)
            if done is None:
                mine: Future[SubmittedSweep] = Future()
                self._done[name] = mine
                while len(self._done) > _MOST_SENT:
                    self._done.popitem(last=False)
        if done is not None:
            return done.result(timeout=_PATIENCE_S), True
        try:
            submitted = enqueue()
        except BaseException as error:
            with self._lock:
                self._done.pop(name, None)
            mine.set_exception(error)
            raise
        mine.set_result(submitted)
        return submitted, False


def form_key() -> str:
    """Return a new key of a form that enqueues a sweep; see `Sent`."""
    return secrets.token_urlsafe(16)
