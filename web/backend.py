"""The settings, store and scheduler wake-up signal that requests use.

A request never publishes to the broker. It writes to the store and, when the answer is out,
wakes the scheduler. That signal may be lost: the scheduler also reads the store regularly.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TypeVar, cast

import sqlalchemy as sa
from flask import Flask, current_app, g
from sqlalchemy.orm import Session
from werkzeug.wrappers import Response

from farm.broker.wake_up import WakeReason, WakeUp
from farm.cells.reading import SweepReading, read_sweep
from farm.gang.views import LiveAgent
from farm.processes.cache import Cache
from farm.recommend.cache.knowledge import RecommenderCache
from farm.recommend.prices import Prices, load_prices
from farm.settings.server import Settings
from farm.store.agents.agents import live_agents
from farm.store.engine import reading, writing
from farm.store.measurements.cell_rows import cells_stamp
from farm.store.stamps import job_stamps, sweep_stamps
from web.advice.sweep_advice import SweepAdvice
from web.background import Background
from web.live.changes import ChangeKind, Changes, Look, Subject
from web.new_sweep.drafts import Draft, Sent
from web.tickets import Tickets

_KEY = "benchfarm"
_WRITES = "in_each_transaction"
MOST_JOBS = 10_000  # of a sweep, summed up on pages, which say so
_BUSY_S = 2.0  # how often a job that runs counts as changed
_R = TypeVar("_R", bound=Response)


@dataclass(frozen=True, slots=True)
class Upload:
    """A file that is kept between its preview and its import. `name`: as its sender calls it."""

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
    """Return a sweep as the session sees it, from what is kept of it. Mutates `cache`.

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
    """Open a transaction that commits at the end of the block, or undoes itself on an error."""
    with writing(backend().engine) as session:
        for write in g.get(_WRITES, ()):
            write(session)
        yield session


def in_each_transaction(write: Callable[[Session], None]) -> None:
    """Have something written in the transactions of this request, before anything else."""
    g.setdefault(_WRITES, []).append(write)


def wake_after(response: _R) -> _R:
    """Wake the scheduler once the response has been sent.

    A broker that is away would cost up to a second here; nobody waits for it.
    """
    wake = WakeUp(backend().settings.broker_url)
    response.call_on_close(functools.partial(wake.send, WakeReason.REQUESTED))
    return response


def now() -> dt.datetime:
    """Read the clock: the one place where requests do."""
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
