"""Simulates viewers of live pages: each follows events, and reloads its page after one.

They do what `web/static/live.js` does in a browser: an event plans a look, a look reads the whole
page, and what happens meanwhile plans the next one.
"""

from __future__ import annotations

import bisect
import contextlib
import http.client
import itertools
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from types import TracebackType

from benchmarks.web.web_server import Client
from farm.embedded.redis import LOOPBACK_ADDRESS
from farm.errors import FarmError

_REST_S = 1.0  # REST_MS of live.js
_LIVE_LOOK = {"X-Live-Look": "1"}  # its header, see web/request_body.py
_STREAM_S = 40.0  # without a word the server is dead: it speaks every few seconds
_LEAVE_S = 10.0


@dataclass(slots=True)
class Viewer:
    """One reader of a page. Instants are those of time.monotonic()."""

    page: str
    events: str  # the address of the stream
    told_at_s: list[float] = field(default_factory=list)
    looks_s: list[float] = field(default_factory=list)  # how long each look took
    status: int | None = None  # of the stream
    failure: BaseException | None = None


class Viewers:
    """Watch for the length of a `with` block; all streams are open when it begins.

    Raises FarmError at its end where one of them got an error.
    """

    def __init__(self, port: int, viewers: Sequence[Viewer]) -> None:
        self.viewers = viewers
        self._port = port
        self._is_over = threading.Event()
        self._opened = threading.Barrier(len(viewers) + 1)
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Viewers:
        for viewer in self.viewers:
            has_changed = threading.Event()
            for act in (self._listen, self._look):
                thread = threading.Thread(target=act, args=(viewer, has_changed), daemon=True)
                self._threads.append(thread)
                thread.start()
        try:
            self._opened.wait()
        except threading.BrokenBarrierError:
            self._is_over.set()
            failed = next(viewer for viewer in self.viewers if viewer.failure is not None)
            raise FarmError(f"{failed.events}: {failed.failure!r}") from failed.failure
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_over.set()
        leave_by_s = time.monotonic() + _LEAVE_S
        for thread in self._threads:
            thread.join(timeout=max(0.0, leave_by_s - time.monotonic()))
        failures = [viewer.failure for viewer in self.viewers if viewer.failure is not None]
        if error is None and failures:
            raise FarmError(f"{len(failures)} viewers failed: {failures[0]!r}") from failures[0]

    @property
    def refused_count(self) -> int:
        """How many streams were not given."""
        return sum(viewer.status != HTTPStatus.OK for viewer in self.viewers)

    def _listen(self, viewer: Viewer, has_changed: threading.Event) -> None:
        connection = http.client.HTTPConnection(LOOPBACK_ADDRESS, self._port, timeout=_STREAM_S)
        try:
            # A stream ends after a while, and a browser connects again.
            while viewer.status in (None, HTTPStatus.OK) and not self._is_over.is_set():
                connection.request("GET", viewer.events)
                answer = connection.getresponse()
                is_first, viewer.status = viewer.status is None, answer.status
                if is_first:
                    with contextlib.suppress(threading.BrokenBarrierError):
                        self._opened.wait()
                while not self._is_over.is_set() and (line := answer.readline()):
                    if line.startswith(b"event: changed"):
                        viewer.told_at_s.append(time.monotonic())
                        has_changed.set()
                connection.close()
        except (OSError, http.client.HTTPException) as error:
            viewer.failure = error
            self._opened.abort()
        finally:
            connection.close()

    def _look(self, viewer: Viewer, has_changed: threading.Event) -> None:
        client = Client(self._port)
        try:
            while not self._is_over.wait(_REST_S):
                if has_changed.wait(timeout=_REST_S) and not self._is_over.is_set():
                    has_changed.clear()
                    viewer.looks_s.append(client.get(viewer.page, headers=_LIVE_LOOK).elapsed_s)
        except (OSError, http.client.HTTPException, FarmError) as error:
            viewer.failure = error
        finally:
            client.close()


def delays_s(viewers: Sequence[Viewer], changed_at_s: Sequence[float]) -> list[float]:
    """Return for each viewer and change how long it took until the viewer was told.

    What changed before the first event, or was not told before the last one, is left out.
    """
    found = []
    for viewer, changed_s in itertools.product(viewers, changed_at_s):
        place = bisect.bisect_left(viewer.told_at_s, changed_s)
        if 0 < place < len(viewer.told_at_s):
            found.append(viewer.told_at_s[place] - changed_s)
    return found
