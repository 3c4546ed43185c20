"""What a request may reach behind the web server: the settings, the store, the scheduler's bell.

A request never publishes to the broker. It writes to the store and, when the answer is out,
rings a bell that may be lost: the scheduler looks by itself now and then.
"""

from __future__ import annotations

import datetime as dt
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TypeVar, cast

import sqlalchemy as sa
from flask import Flask, current_app
from sqlalchemy.orm import Session
from werkzeug.wrappers import Response

from farm.config import Settings
from farm.recommend.kept.memory import Memory
from farm.recommend.prices import Prices
from farm.store.engine import reading, writing
from farm.wire import Wake
from web.advice import FindingsCache

_KEY = "benchfarm"
_R = TypeVar("_R", bound=Response)


@dataclass(frozen=True, slots=True)
class Backend:
    settings: Settings
    engine: sa.Engine
    memory: Memory
    prices: Prices
    findings: FindingsCache = field(default_factory=FindingsCache)


def install(app: Flask, backend: Backend) -> None:
    """Give the app its backend."""
    app.extensions[_KEY] = backend


def backend() -> Backend:
    """Return the backend of the app that serves this request."""
    return cast(Backend, current_app.extensions[_KEY])


def read_session() -> AbstractContextManager[Session]:
    """Open one snapshot of the store. Raises Unreachable when the database does not answer."""
    return reading(backend().engine)


def write_session() -> AbstractContextManager[Session]:
    """Open a transaction that commits at the end of the block, or undoes itself on an error."""
    return writing(backend().engine)


def ring_after(response: _R) -> _R:
    """Tell the scheduler that there is something new, once the response has been sent.

    A broker that is away would cost up to a second here; nobody waits for it.
    """
    wake = Wake(backend().settings.broker_url)
    response.call_on_close(wake.ring)
    return response


def now() -> dt.datetime:
    """Read the clock: the one place where requests do."""
    return dt.datetime.now(dt.UTC)
