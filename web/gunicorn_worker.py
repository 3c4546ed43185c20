"""The Gunicorn worker that leaves slow clients to `web.slow_clients`.

No setting of Gunicorn limits them: https://github.com/benoitc/gunicorn/issues/2652. Once
`test_gunicorn_alone_is_kept_by_slow_clients` fails, Gunicorn's own threaded worker may suffice.
"""

from __future__ import annotations

import functools
from typing import Any

from gunicorn import http  # type: ignore[import-untyped] # it has none
from gunicorn.sock import ssl_context  # type: ignore[import-untyped]
from gunicorn.workers.gthread import TConn, ThreadWorker  # type: ignore[import-untyped]

from web.slow_clients import ClientSocket, RequestReader


class SlowClientWorker(ThreadWorker):  # type: ignore[misc] # gunicorn has no types
    """Gives a thread to requests that are there. Its application says `is_behind_proxy`."""

    @functools.cached_property
    def _reader(self) -> RequestReader:
        return RequestReader(
            self.poller,
            tls=ssl_context(self.cfg) if self.cfg.is_ssl else None,
            is_behind_proxy=self.app.is_behind_proxy,
            on_request=lambda client: self.enqueue_req(client.connection),
            on_closed=self._forget,
        )

    def accept(self, listener: Any) -> None:
        if (client := self._reader.accept(listener)) is not None:
            conn = client.connection = TConn(self.cfg, client, client.peer, listener.getsockname())
            conn.parser = http.get_parser(self.cfg, client, client.peer)
            conn.initialized = conn.data_ready = True
            self.nr_conns += 1
            self._reader.begin(client)

    def on_client_socket_readable(self, conn: Any, client: ClientSocket) -> None:
        self.poller.unregister(client)
        self.keepalived_conns.remove(conn)
        self._reader.begin(client)

    def finish_request(self, conn: Any, fs: Any) -> None:
        self._reader.end(conn.sock, read_ahead=conn.parser.unreader.take_buffered())
        is_kept = not fs.cancelled() and fs.exception() is None and fs.result()
        if not is_kept or conn.sock.is_at_end:
            self._reader.close_gracefully(conn.sock)
        elif conn.sock.text:
            self._reader.begin(conn.sock)
        else:
            super().finish_request(conn, fs)

    def wait_for_and_dispatch_events(self, timeout: float) -> None:
        super().wait_for_and_dispatch_events(min(timeout, 1.0))  # Gunicorn 26 waits until it stops
        self._reader.drop_late(is_stopping=not self.alive)

    def _forget(self, _: ClientSocket) -> None:
        self.nr_conns -= 1
