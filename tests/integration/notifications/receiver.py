"""A web server that messages are sent to, on this machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HOST = "127.0.0.1"


class Receiver:
    """`received`: headers and body of each POST; `answer` says with which status each ends.

    `requests`: the first line of each request, whatever its method. `says` and `reason`: the body
    of each answer, and the words beside its status.
    """

    def __init__(self, port: int = 0) -> None:
        self.received: list[tuple[dict[str, str], bytes]] = []
        self.answer: Callable[[int], int] = lambda number: 204
        self.says = b""
        self.reason: str | None = None
        self.retry_after: str | None = None
        self.location = "http://127.0.0.1:1/"
        self.requests: list[str] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                receiver.received.append((headers, body))
                self.send_response(receiver.answer(len(receiver.received)), receiver.reason)
                self.send_header("location", receiver.location)
                if receiver.retry_after is not None:
                    self.send_header("retry-after", receiver.retry_after)
                self.end_headers()
                self.wfile.write(receiver.says)

            def log_request(self, *_: object) -> None:
                receiver.requests.append(self.requestline)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer((HOST, port), Handler)
        self.port = self._server.server_port
        self.address = f"http://{HOST}:{self.port}/hook?key=secret"

    @property
    def messages(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, body in self.received]

    @contextmanager
    def serving(self) -> Iterator[Receiver]:
        thread = threading.Thread(target=self._server.serve_forever)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()
