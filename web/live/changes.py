"""Notifies open pages when a sweep or a job has changed.

One thread reads the store once a second for all watchers, and only while there are any. Many open
pages therefore cost the store no more than one. The thread compares a stamp of each watched sweep
or job, so code that changes them has nothing to do for it.
"""

from __future__ import annotations

import enum
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from farm.errors import FarmError

logger = logging.getLogger(__name__)

MAX_WATCHERS = 40
MAX_OF_ONE_VIEWER = 10
_LOOK_EVERY_S = 1.0


class ChangeKind(enum.Enum):
    SWEEP = "sweep"
    JOB = "job"


@dataclass(frozen=True, slots=True)
class Subject:
    """What is watched. `row_id`: of the sweep, or of the job."""

    kind: ChangeKind
    row_id: int


# Of each subject a value that is another one whenever the subject has changed; of one that is
# gone there is none.
Look = Callable[[frozenset[Subject]], Mapping[Subject, Hashable]]


class TooManyWatchers(Exception):
    """Too many watchers: the client should poll instead."""


class Changes:
    """The watchers of one process. Threads share it."""

    def __init__(
        self,
        look: Look,
        *,
        every_s: float = _LOOK_EVERY_S,
        max_watchers: int = MAX_WATCHERS,
        max_of_one_viewer: int = MAX_OF_ONE_VIEWER,
    ) -> None:
        self._look = look
        self._every_s = every_s
        self._max_watchers = max_watchers
        self._max_of_one_viewer = max_of_one_viewer
        self._changed = threading.Condition()
        self._watched: Counter[Subject] = Counter()
        self._viewers: Counter[str] = Counter()
        self._stamps: dict[Subject, Hashable] = {}
        self._versions: Counter[Subject] = Counter()
        self._is_looking = False

    @contextmanager
    def watching(self, subject: Subject, *, viewer: str | None = None) -> Iterator[Watcher]:
        """Watch a subject for the length of the block.

        `viewer`: who watches, so that nobody takes all the places; None is not counted.

        Raises:
            TooManyWatchers: as many as may be are there, or as many of this viewer.
        """
        with self._changed:
            is_full = self._watched.total() >= self._max_watchers
            if is_full or (viewer and self._viewers[viewer] >= self._max_of_one_viewer):
                raise TooManyWatchers
            self._watched[subject] += 1
            if viewer:
                self._viewers[viewer] += 1
            # What happened between the reading of the page and the first look counts as a change.
            known = self._versions[subject] - (subject in self._stamps)
            watcher = Watcher(self, subject, known)
            if not self._is_looking:
                self._is_looking = True
                threading.Thread(target=self._run, name="changes", daemon=True).start()
        try:
            yield watcher
        finally:
            with self._changed:
                self._watched[subject] -= 1
                if not self._watched[subject]:
                    del self._watched[subject]
                    self._stamps.pop(subject, None)
                    self._versions.pop(subject, None)
                if viewer:
                    self._viewers -= Counter((viewer,))  # leaves nothing of who has none left
                self._changed.notify_all()

    def wait(self, subject: Subject, known: int, *, timeout_s: float) -> int:
        """Return the subject's version as soon as it is another than the known one.

        After `timeout_s` it is still that one.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._versions[subject] != known, timeout=timeout_s)
            return self._versions[subject]

    def _run(self) -> None:
        """Look until nobody watches; runs in a thread of its own."""
        while True:
            begun = time.monotonic()
            with self._changed:
                subjects = frozenset(self._watched)
                if not subjects:
                    self._is_looking = False
                    return
            self._compare(subjects, self._looked_at(subjects))
            with self._changed:
                # A watcher that leaves meanwhile wakes this up, so that the last one ends it.
                until = begun + self._every_s
                while self._watched and (rest_s := until - time.monotonic()) > 0:
                    self._changed.wait(timeout=rest_s)

    def _looked_at(self, subjects: frozenset[Subject]) -> Mapping[Subject, Hashable] | None:
        try:
            return self._look(subjects)
        except FarmError as error:
            logger.warning("the store could not be read: %s", error)
        except Exception:
            logger.exception("the store could not be read")
        return None

    def _compare(
        self, subjects: frozenset[Subject], found: Mapping[Subject, Hashable] | None
    ) -> None:
        if found is None:
            return
        with self._changed:
            for subject in subjects & frozenset(self._watched):
                stamp = found.get(subject)
                if subject not in self._stamps or self._stamps[subject] != stamp:
                    self._stamps[subject] = stamp
                    self._versions[subject] += 1
            self._changed.notify_all()


class Watcher:
    """One reader's place in the changes of a subject."""

    def __init__(self, changes: Changes, subject: Subject, known: int) -> None:
        self._changes = changes
        self._subject = subject
        self._known = known

    def has_changed(self, *, within_s: float) -> bool:
        """Wait so long for a change; several that came meanwhile are one."""
        version = self._changes.wait(self._subject, self._known, timeout_s=within_s)
        has_changed = version != self._known
        self._known = version
        return has_changed
