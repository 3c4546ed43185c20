"""Downloads one file within a time limit, and checks its hash."""

from __future__ import annotations

import hashlib
import logging
import tempfile
import time
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import IO
from urllib.error import HTTPError

from farm.trainers.failures import DatasetMissing

logger = logging.getLogger(__name__)

_CHUNK_BYTES = 1 << 18


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFile:
    """What to fetch, and the SHA-256 that it must have."""

    file_name: str
    url: str
    sha256: str


def fetch(
    remote: RemoteFile, folder: Path, *, connect_timeout_s: float = 10.0, limit_s: float = 300.0
) -> Path:
    """Download `remote` into `folder` and return its path.

    It appears under its name only complete and checked, so that several trainers may fetch at once
    and a killed one leaves nothing that could be taken for the file.

    Raises:
        DatasetMissing: not reachable, too slow, another checksum, or the folder is not writable.
    """
    target = folder / remote.file_name
    hint = f"put {remote.file_name} into {folder}, as 'curl -fLo {target} {remote.url}' does"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".partial-") as scratch:
            partial = Path(scratch) / remote.file_name
            with urllib.request.urlopen(remote.url, timeout=connect_timeout_s) as response:  # noqa: S310 (listed in the code)
                sha256 = _copy(response, partial, deadline_s=time.monotonic() + limit_s)
            if sha256 != remote.sha256:
                raise DatasetMissing(
                    f"{remote.url}: expected sha256 {remote.sha256}, got {sha256}; {hint}"
                )
            partial.replace(target)
    except (OSError, HTTPException) as error:  # URLError and timeouts are OSErrors too
        if isinstance(error, HTTPError):
            error.close()  # it holds the connection
        raise DatasetMissing(f"{remote.url}: cannot be downloaded ({error}); {hint}") from error
    logger.info("data set downloaded", extra={"path": str(target)})
    return target


def _copy(response: IO[bytes], partial: Path, *, deadline_s: float) -> str:
    digest = hashlib.sha256()
    with partial.open("xb") as file:
        while chunk := response.read(_CHUNK_BYTES):
            digest.update(chunk)
            file.write(chunk)
            if time.monotonic() > deadline_s:
                raise TimeoutError("too slow")
    return digest.hexdigest()
