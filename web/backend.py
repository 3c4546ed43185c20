"""What requests share: settings, store, caches, background work, and how to wake the scheduler.

A request never publishes to the broker. It writes to the store and, when the answer is out,
wakes the scheduler. That signal may be lost: the scheduler also reads the store regularly.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
import logging
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar, cast

import sqlalchemy as sa
from flask import Flask, current_app, g
from sqlalchemy.orm import Session
from werkzeug.wrappers import Response

from farm.broker.wake_up import WakeReason, WakeUp
from farm.cells.reading import SweepReading, read_sweep
from farm.errors import FarmError
from farm.gang.snapshots import LiveAgent
from farm.processes.cache import Cache
from farm.recommend.cache.knowledge import RecommenderCache
from farm.recommend.prices import Prices, load_prices
from farm.settings.server import Settings
from farm.store.agents.agents import live_agents
from farm.store.engine import reading, writing
from farm.store.measurements.cell_rows import cells_stamp
from farm.store.stamps import job_stamps, sweep_stamps
from web.advice.sweep_advice import SweepAdvice
from web.live.changes import ChangeKind, Changes, Look, Subject
from web.new_sweep.drafts import Draft, Sent

logger = logging.getLogger(__name__)

_KEY = "benchfarm"
_WRITES = "in_each_transaction"
MOST_JOBS = 10_000  # of a sweep, summed up on pages, which say so
_BUSY_S = 2.0  # how often a job that runs counts as changed
_MOST_MADE = 32  # answers that are kept
_MOST_DUE = 8
_PATIENCE_S = 0.1  # of a request, which has twice that
_T = TypeVar("_T")
_R = TypeVar("_R", bound=Response)


class Tickets(Generic[_T]):
    """Temporary values in memory, each found by a random ticket.

    Threads share them. Beyond a limit the oldest are dropped, and a restart forgets all.

    `most`: the largest number of values; `most_size`: the largest sum of their sizes, unless one
    alone is larger.
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
        """Store a value, and return its ticket."""
        ticket = secrets.token_urlsafe(24)
        with self._lock:
            self._kept[ticket] = value, now
            size = sum(self._size_of(kept) for kept, _ in self._kept.values())
            while len(self._kept) > self._most or (size > self._most_size and len(self._kept) > 1):
                _, (oldest, _) = self._kept.popitem(last=False)
                size -= self._size_of(oldest)
        return ticket

    def find(self, ticket: str, *, now: dt.datetime) -> _T | None:
        """Return the value; None: it was never stored, or was dropped."""
        with self._lock:
            value, kept_at = self._kept.get(ticket, (None, now))
            if now - kept_at > self._kept_for:
                del self._kept[ticket]
                return None
        return value

    def forget(self, ticket: str) -> None:
        """Drop a value, if it is stored."""
        with self._lock:
            self._kept.pop(ticket, None)


@dataclass(frozen=True, slots=True)
class BackgroundValue(Generic[_T]):
    value: _T


class Background:
    """Computes slow answers in one thread, while pages poll for them. Threads share it.

    It computes one at a time, since each needs a processor. An answer is cached by its key, which
    must contain everything that the answer depends on. An error is reported once and not cached:
    its cause, such as a database that was away, may have passed at the next request.
    """

    def __init__(self, *, patience_s: float = _PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._changed = threading.Condition()
        self._kept: OrderedDict[Hashable, BackgroundValue[object] | Exception] = OrderedDict()
        self._due: OrderedDict[Hashable, Callable[[], object]] = OrderedDict()
        self._is_working = False

    def ask(
        self, key: Hashable, make: Callable[[], _T], *, patience_s: float | None = None
    ) -> BackgroundValue[_T] | None:
        """Return the answer for the key; None: not ready yet, ask again.

        If the list of pending answers is full, nothing is added until the next request.
        `patience_s`: how long to wait here, instead of the default.

        Raises the error that `make` has raised.
        """
        timeout_s = self._patience_s if patience_s is None else patience_s
        with self._changed:
            if key not in self._kept and self._is_due(key, make):
                self._changed.wait_for(lambda: key in self._kept, timeout=timeout_s)
            outcome = self._kept.get(key)
            if outcome is None:
                return None
            if isinstance(outcome, Exception):
                del self._kept[key]
            else:
                self._kept.move_to_end(key)
        if isinstance(outcome, Exception):
            raise outcome.with_traceback(None)
        return cast("BackgroundValue[_T]", outcome)

    def _is_due(self, key: Hashable, make: Callable[[], object]) -> bool:
        """Add it to the pending list unless that is full; return whether it is there."""
        if key not in self._due and len(self._due) < _MOST_DUE:
            self._due[key] = make
        if not self._is_working:
            self._is_working = True
            threading.Thread(target=self._work, name="background", daemon=True).start()
        return key in self._due

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._due:
                    self._is_working = False
                    return
                # It stays there while it is made, so that nobody adds it again.
                key, make = next(iter(self._due.items()))
            outcome = _outcome(make)
            with self._changed:
                del self._due[key]
                self._kept[key] = outcome
                while len(self._kept) > _MOST_MADE:
                    self._kept.popitem(last=False)
                self._changed.notify_all()


def _outcome(make: Callable[[], object]) -> BackgroundValue[object] | Exception:
    try:
        return BackgroundValue(make())
    except FarmError as error:
        return error
    except Exception as error:
        logger.exception("an answer could not be made")
        return error


@dataclass(frozen=True, slots=True)
class Upload:
    """A file that is stored between its preview and its import.

    `name`: the sender's name for it.
    """

    content: bytes
    name: str


@dataclass(frozen=True, slots=True)
class Backend:
    settings: Settings
    engine: sa.Engine
    recommender_cache: RecommenderCache
    prices: Prices
    changes: Changes
    advice: SweepAdvice
    # Each of the tables, of 5,000 cells, is some 8 MB.
    tables: Cache = field(default_factory=lambda: Cache(most=8))
    comparisons: Cache = field(default_factory=lambda: Cache(most=8))
    pictures: Cache = field(default_factory=lambda: Cache(most=32))
    paces: Cache = field(default_factory=lambda: Cache(most=32))
    queues: Cache = field(default_factory=lambda: Cache(most=2))
    background: Background = field(default_factory=Background)
    uploads: Tickets[Upload] = field(
        default_factory=lambda: Tickets(most=8, kept_for=dt.timedelta(minutes=30))
    )
    bundling: threading.Lock = field(
        default_factory=threading.Lock
    )  # held by the one that is worked on
    drafts: Tickets[Draft] = field(
        default_factory=lambda: Tickets(
            most=200, kept_for=dt.timedelta(hours=2), most_size=32_000_000, size_of=Draft.size
        )
    )
    sent: Sent = field(default_factory=Sent)
    drawings: Cache = field(default_factory=lambda: Cache(most=32))
    papers: Cache = field(default_factory=lambda: Cache(most=32))
    # Of browsers that are signed in, each with the id of its token, so that signing out ends them.
    sessions: Tickets[int] = field(default_factory=lambda: Tickets(most=10_000))
    callers: Cache = field(default_factory=lambda: Cache(most=64))
    # Of drafts. A thread of its own, since it also waits for fits: no plan shall wait behind it.
    expectations: Background = field(default_factory=lambda: Background(patience_s=0.05))
    predictions: Background = field(default_factory=lambda: Background(patience_s=0.0))


def make_backend(settings: Settings, engine: sa.Engine) -> Backend:
    """Build what the requests of one process share.

    Raises:
        InvalidSpec: FARM_PRICES is no price table.
    """
    recommender_cache = RecommenderCache.of_server(settings.home)
    return Backend(
        settings=settings,
        engine=engine,
        recommender_cache=recommender_cache,
        prices=load_prices(settings.prices),
        changes=Changes(_look(engine)),
        advice=SweepAdvice(engine, recommender_cache),
    )


def install(app: Flask, backend: Backend) -> None:
    """Give the app its backend."""
    app.extensions[_KEY] = backend


def backend() -> Backend:
    """Return the backend of the app that serves this request."""
    return cast(Backend, current_app.extensions[_KEY])


def read_session() -> AbstractContextManager[Session]:
    """Open one snapshot of the store. Raises Unreachable when the database does not answer."""
    return reading(backend().engine)


def live_agents_now(session: Session) -> list[LiveAgent]:
    """Return the agents that are live at this moment."""
    lease_s = backend().settings.lease_s
    return live_agents(session, now=now(), live_within_s=lease_s)


def sweep_reading(session: Session, sweep_id: int) -> SweepReading:
    """Return the cells of a sweep as the session sees them. Raises NotFound: there is no sweep."""
    behind = backend()
    return cached_reading(behind.tables, session, sweep_id, prices=behind.prices)


def cached_reading(
    cache: Cache, session: Session, sweep_id: int, *, prices: Prices
) -> SweepReading:
    """Return a sweep as the session sees it, with the help of cached cells. Mutates `cache`.

    Raises:
        NotFound: there is no such sweep.
    """
    stamp = cells_stamp(session, sweep_id)

    def read(before: SweepReading | None) -> SweepReading:
        found = read_sweep(session, sweep_id, prices=prices, before=before, max_jobs=MOST_JOBS)
        return dataclasses.replace(found, stamp=stamp)

    return cache.get(sweep_id, read, is_good=lambda made: made.value.stamp == stamp)


@contextmanager
def write_session() -> Iterator[Session]:
    """Open a transaction that commits at the end of the block, and rolls back on an error."""
    with writing(backend().engine) as session:
        for write in g.get(_WRITES, ()):
            write(session)
        yield session


def in_each_transaction(write: Callable[[Session], None]) -> None:
    """Call `write` first in each write transaction of this request."""
    g.setdefault(_WRITES, []).append(write)


def wake_after(response: _R) -> _R:
    """Wake the scheduler once the response has been sent.

    An unreachable broker would delay the response by up to a second.
    """
    wake = WakeUp(backend().settings.broker_url)
    response.call_on_close(functools.partial(wake.send, WakeReason.REQUESTED))
    return response


def now() -> dt.datetime:
    """Return the present time. Requests read the clock only here."""
    return dt.datetime.now(dt.UTC)


def _look(engine: sa.Engine) -> Look:
    """Return what looks at the watched sweeps and jobs of a store."""

    def look(subjects: frozenset[Subject]) -> dict[Subject, Hashable]:
        ids = {kind: {s.row_id for s in subjects if s.kind is kind} for kind in ChangeKind}
        beat = int(time.monotonic() / _BUSY_S)
        with reading(engine) as session:
            sweeps = sweep_stamps(session, ids[ChangeKind.SWEEP])
            jobs = job_stamps(session, ids[ChangeKind.JOB], beat=beat)
        return {
            **{Subject(ChangeKind.SWEEP, row_id): stamp for row_id, stamp in sweeps.items()},
            **{Subject(ChangeKind.JOB, row_id): stamp for row_id, stamp in jobs.items()},
        }

    return look
