"""Runs the web server as a separate process, and requests pages over one connection."""

from __future__ import annotations

import http.client
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.figures import root, say
from benchmarks.stopping import stop
from farm.embedded.redis import LOOPBACK_ADDRESS, free_port
from farm.errors import FarmError

_START_S = 60.0
_ANSWER_S = 60.0
_LOG_CHARACTERS = 2000  # shown where something failed


@contextmanager
def running_web(home: Path, **settings: str) -> Iterator[int]:
    """Run the web server as systemd does, and yield its port once it answers."""
    port = free_port()
    environ = {**farm_environ(home), **settings, "FARM_WEB_PORT": str(port)}
    command = [sys.executable, "-P", "-m", "farm.cli.main", "run", "web"]
    with (home / "web.log").open("wb") as log:
        process = subprocess.Popen(command, env=environ, stdout=log, stderr=log, cwd=root())
    try:
        _wait_until_it_listens(process, home / "web.log")
        yield port
    except FarmError:
        say((home / "web.log").read_text()[-_LOG_CHARACTERS:])
        raise
    finally:
        stop(process)


def _wait_until_it_listens(process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_S
    while b"dashboard at" not in log.read_bytes():
        if process.poll() is not None or time.monotonic() > deadline:
            raise FarmError("the web server does not listen: see its log")
        time.sleep(0.05)


def farm_environ(home: Path) -> dict[str, str]:
    """Return the environment of a command whose farm lives in that folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FARM_")}
    return {**kept, "FARM_HOME": str(home)}


@dataclass(frozen=True, slots=True)
class TimedAnswer:
    """`elapsed_s`: from the request to the last byte; `server_s`: what of it the server took."""

    elapsed_s: float
    server_s: float
    body: bytes


class Client:
    """One connection that is kept open, as a browser's."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection(LOOPBACK_ADDRESS, port, timeout=_ANSWER_S)

    def get(self, path: str, *, headers: Mapping[str, str] | None = None) -> TimedAnswer:
        """Ask for a path and read the whole answer.

        Raises:
            FarmError: the answer is another than 200.
        """
        begun = time.perf_counter()
        try:
            answer = self._ask(path, headers or {})
        except (ConnectionError, http.client.RemoteDisconnected):
            # The server closes connections that were idle for a while; a browser asks again.
            self._connection.close()
            begun = time.perf_counter()
            answer = self._ask(path, headers or {})
        body = answer.read()
        elapsed_s = time.perf_counter() - begun
        if answer.status != http.HTTPStatus.OK:
            raise FarmError(f"{path}: {answer.status} {body[:300]!r}")
        match = re.search(r"dur=([\d.]+)", answer.headers["Server-Timing"])
        assert match is not None, "the server times every answer"
        return TimedAnswer(elapsed_s, float(match[1]) / 1000, body)

    def close(self) -> None:
        self._connection.close()

    def _ask(self, path: str, headers: Mapping[str, str]) -> http.client.HTTPResponse:
        self._connection.request("GET", path, headers=dict(headers))
        return self._connection.getresponse()
