"""Reads code that an operator has installed, unless another user could have written it."""

from __future__ import annotations

import os
from pathlib import Path

from farm.configuration.model_files import trouble_of


class NotInstalled(Exception):
    """Why a file must not be run, in words that follow its name."""


def read_installed(path: Path, *, most_bytes: int, agent_uid: int | None = None) -> bytes:
    """Return the content; it is not run. `agent_uid`: the agent's user, where it is another one.

    Raises:
        NotInstalled: it is not there, not readable, too long, or others than its operator could
            have written it.
    """
    try:
        # Not through a link, and not waiting for a pipe; what is checked is what is read.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            held = os.fstat(descriptor)
            own_uid = os.geteuid() if agent_uid is None else agent_uid
            trouble = trouble_of(mode=held.st_mode, owner=held.st_uid, own_uid=own_uid)
            if trouble is not None:
                raise NotInstalled(f"{path} {trouble}")
            content = file.read(most_bytes + 1)
    except OSError as error:
        raise NotInstalled(f"{path}: {error.strerror or error}") from None
    if len(content) > most_bytes:
        raise NotInstalled(f"{path} is longer than {most_bytes} bytes")
    return content
