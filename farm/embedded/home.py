"""The folder of an embedded farm: its lock, its ports and the addresses of a running farm."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from farm.errors import FarmError, InvalidSpec
from farm.processes.private_files import make_private_folder, open_private
from farm.values.codec import from_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """The addresses of a farm. The file outlives it, so the next farm uses the same ports."""

    broker_url: str
    broker_port: int
    dashboard_url: str


@contextlib.contextmanager
def locked(home: Path) -> Iterator[None]:
    """Hold the folder for one embedded farm; the kernel lets go if we are killed.

    Raises:
        FarmError: another farm holds it, or it cannot be written to.
    """
    path = home / "lock"
    try:
        make_private_folder(home)
        lock = open_private(path, "a+")
    except OSError as error:
        raise FarmError(
            f"FARM_HOME {home} cannot be written to ({error.strerror}): set FARM_HOME to a folder "
            "of yours"
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FarmError(
                f"a farm is already running in {home} (process {path.read_text().strip()}): "
                "stop it or set FARM_HOME to another folder"
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def is_held(home: Path) -> bool:
    """Whether a farm is running in the folder."""
    try:
        lock = (home / "lock").open("r")
    except OSError:
        return False
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def write_endpoints(home: Path, endpoints: Endpoints) -> None:
    """Replace the file at once, since commands read it while a farm starts."""
    partial = home / f"endpoints.json.{os.getpid()}"
    partial.unlink(missing_ok=True)
    with open_private(partial, "w") as file:  # the URL may hold a password
        file.write(json.dumps(asdict(endpoints)) + "\n")
    partial.replace(home / "endpoints.json")


def read_endpoints(home: Path) -> Endpoints | None:
    """Return the addresses of this folder's latest farm; None without a usable file."""
    try:
        return from_text(Endpoints, (home / "endpoints.json").read_bytes())
    except (OSError, InvalidSpec):
        return None
