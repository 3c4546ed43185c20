"""Serve the dashboard and the API: one gunicorn worker with threads, until a signal ends it.

One process is enough, since requests wait for the store and not for the processor. Sessions are
signed with a secret of that process.
"""

from __future__ import annotations

import datetime as dt
import gc
import os
import socket
from typing import Any

import sqlalchemy as sa
from flask import Flask
from gunicorn.app.base import BaseApplication  # type: ignore[import-untyped] # it has none
from gunicorn.arbiter import Arbiter  # type: ignore[import-untyped]

from farm.errors import InvalidSpec
from farm.processes.service_manager import ServiceManager
from farm.recommend.prices import load_prices
from farm.settings.server import Settings
from farm.settings.web_listening import check_web_listening, web_url
from farm.store.access.api_tokens import has_active_token
from farm.store.engine import make_engine, reading
from farm.store.schema import await_schema
from web.access.authentication import is_beyond_loopback
from web.app import create_app
from web.gunicorn_worker import SlowClientWorker

# Each stream of events holds a thread, 40 at most, and so does each client that is slow to take its
# answer, 32 at most, or to send a long body, 16.
_THREADS = 96
_STOP_TIMEOUT_S = 5
# Tables of cells and measurements that are kept are some hundred thousand objects, and to look
# through them all for cycles stops every request for 0.2 s. With Python's own 700 that came
# with every third page. Nearly all cycles die young, within one request.
_GARBAGE_THRESHOLDS = (50_000, 20, 50)


def run(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT; print one line with the address as soon as it listens.

    Raises:
        InvalidSpec: the address cannot be listened on, or lies beyond loopback without a token or
            without TLS; or FARM_PRICES is no price table.
        Unreachable: the database refuses the account, or its schema is not this version's. One that
            is away is waited for instead.
    """
    manager = ServiceManager(os.environ)
    load_prices(settings.prices)  # a table that does not fit is said here and not by a worker
    engine = make_engine(settings.database_url)
    try:
        await_schema(engine, waits=manager.sleep)
        _require_token(settings, engine)
    finally:
        # The worker is forked from here and must not inherit a connection.
        engine.dispose()
    check_web_listening(settings)
    try:
        _Server(settings, _listen(settings), manager).run()
    except SystemExit as end:
        # Gunicorn ends every stop this way, the ordered one too.
        if end.code:
            raise


def _require_token(settings: Settings, engine: sa.Engine) -> None:
    """Refuse a farm that others can reach and nobody can sign in to."""
    if settings.api_token is not None or not is_beyond_loopback(settings):
        return
    with reading(engine) as session:
        if has_active_token(session, now=dt.datetime.now(dt.UTC)):
            return
    token = "a token: make one with `farm token create NAME --scope admin`, or set FARM_API_TOKEN"
    if settings.proxy_count > 0:
        raise InvalidSpec("FARM_PROXY_COUNT", settings.proxy_count, f"0, or {token}")
    expected = f"a loopback address such as 127.0.0.1, or {token}"
    raise InvalidSpec("FARM_WEB_HOST", settings.web_host, expected)


class _Server(BaseApplication):  # type: ignore[misc] # gunicorn has no types
    """Gunicorn, configured here and not by its command line or environment."""

    def __init__(
        self, settings: Settings, listener: socket.socket, manager: ServiceManager
    ) -> None:
        self.is_behind_proxy = settings.proxy_count > 0
        self._settings = settings
        self._listener = listener
        self._manager = manager
        super().__init__()

    def load_config(self) -> None:
        """Set Gunicorn's options from the farm's settings."""
        options: dict[str, Any] = {
            # Gunicorn closes it in the end.
            "bind": f"fd://{self._listener.detach()}",
            "worker_class": SlowClientWorker,
            "workers": 1,
            "threads": _THREADS,
            "timeout": 60,
            "graceful_timeout": _STOP_TIMEOUT_S,
            "loglevel": "warning",
            # FARM_PROXY_COUNT alone decides; else any program here could claim to be a proxy.
            "forwarded_allow_ips": "",
            "proc_name": "farm-web",
            "control_socket_disable": True,
            "sendfile": False,  # it would wait for slow clients without an end
            "when_ready": lambda _: print(f"dashboard at {web_url(self._settings)}", flush=True),
        }
        if self._settings.web_certificate_file is not None:
            options["certfile"] = str(self._settings.web_certificate_file)
            options["keyfile"] = str(self._settings.web_key_file)
        for name, value in options.items():
            self.cfg.set(name, value)

    def run(self) -> None:
        """Serve; what gunicorn itself tells systemd has no watchdog."""
        _Watched(self, self._manager).run()

    def load(self) -> Flask:
        """Build the application in the worker, and collect garbage there less often."""
        app = create_app(self._settings)
        gc.collect()
        gc.freeze()  # what is imported stays for good
        gc.set_threshold(*_GARBAGE_THRESHOLDS)
        return app


class _Watched(Arbiter):  # type: ignore[misc] # gunicorn has no types
    """The process above the worker, which it replaces if it hangs; systemd watches this one."""

    def __init__(self, server: _Server, manager: ServiceManager) -> None:
        self._manager = manager
        super().__init__(server)

    def murder_workers(self) -> None:
        """Do what each turn of the loop does, once a second."""
        super().murder_workers()
        self._manager.notify_watchdog()


def _listen(settings: Settings) -> socket.socket:
    """Listen before gunicorn starts, which would retry a taken port for seconds.

    Raises:
        InvalidSpec: the port is taken, or the address is not one of this machine's.
    """
    where = (settings.web_host, settings.web_port)
    try:
        family = socket.getaddrinfo(*where, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server(where, family=family, backlog=128)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InvalidSpec(
            "FARM_WEB_HOST and FARM_WEB_PORT",
            f"{settings.web_host}:{settings.web_port}",
            f"an address that is free on this machine ({reason.lower()})",
        ) from None
    return listener
