"""Who is no part of the farm: a program with a stolen key, and slow clients of the web server."""

from __future__ import annotations

import random
import signal
import socket
import threading
from contextlib import suppress

from tests.chaos.farm import LEASE_S, LIAR, ChaosFarm
from tests.chaos.faults.contract import Fault, Heal, Scope, all_serve
from tests.chaos.faults.servers import web_is, web_serves

_SLOW_COUNT = 300
_VIEWER_COUNT = 40
_HEAD = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nX-Slow: " + b"y" * 60
_STREAM = b"GET /api/v1/events?sweep=1 HTTP/1.1\r\nHost: localhost\r\n\r\n"


def lie(farm: ChaosFarm, agent: str, rng: random.Random) -> Heal:
    """Start the program; it is ended by force, in whatever it does."""
    del agent, rng
    farm.start_liar()
    return lambda: farm.signal(LIAR, signal.SIGKILL)


def has_ended(farm: ChaosFarm) -> str | None:
    return None if farm.is_running(LIAR) else "the lying agent has ended by itself"


def connect_slowly(farm: ChaosFarm, agent: str, rng: random.Random) -> Heal:
    """Open connections that send a byte now and then, and some that only listen."""
    del agent, rng
    web_is(farm, "live", within_s=30)  # the fault before may have killed it
    opened = _connected(farm, _STREAM, count=_VIEWER_COUNT)
    slow = _connected(farm, b"", count=_SLOW_COUNT)
    is_over = threading.Event()

    def trickle() -> None:
        for place in range(len(_HEAD)):
            for connection in slow:
                with suppress(OSError):
                    connection.send(_HEAD[place : place + 1])
            if is_over.wait(1.0):
                return

    thread = threading.Thread(target=trickle, daemon=True)
    thread.start()

    def end() -> None:
        is_over.set()
        thread.join(timeout=60)
        for connection in (*opened, *slow):
            connection.close()

    return end


def _connected(farm: ChaosFarm, text: bytes, *, count: int) -> list[socket.socket]:
    """Return as many connections as the server takes."""
    found = []
    for _ in range(count):
        with suppress(ConnectionError):
            connection = socket.create_connection(("127.0.0.1", farm.web_port), timeout=60)
            found.append(connection)
            connection.sendall(text)
            connection.setblocking(False)
    return found


def is_kept_out(farm: ChaosFarm) -> str | None:
    return None if web_is(farm, "live", within_s=30) else "/health/live does not answer"


STRANGER_FAULTS = (
    Fault(
        name="a lying agent",
        does="a program with a stolen key floods the queues with heartbeats and reports: absurd,"
        " late, foreign, enormous, unsigned",
        scope=Scope.FARM,
        lasts_s=(4.0, 4.0 + LEASE_S),  # it takes seconds to begin
        limit_s=10.0,
        counts_from_end=True,
        strike=lie,
        serves=all_serve,
        broken=has_ended,
    ),
    Fault(
        name="slow clients",
        does="300 connections to the web server that send a byte each second, and 40 viewers;"
        " /health/live has to answer meanwhile",
        scope=Scope.ASIDE,
        lasts_s=(2.0, 6.0),
        limit_s=10.0,
        strike=connect_slowly,
        serves=web_serves,
        broken=is_kept_out,
    ),
)
