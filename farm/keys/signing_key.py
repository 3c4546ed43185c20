"""The farm's signing key, a file of the server, from which all agents' keys are derived."""

from __future__ import annotations

import os
import re
import secrets
import stat
from pathlib import Path

from farm.broker.url import is_local_broker, redact
from farm.errors import InvalidSpec
from farm.messages.agent_keys import KEY_BYTES
from farm.settings.server import Settings

_NAME = "FARM_SIGNING_KEY_FILE"
_HEX = re.compile(r"[0-9a-fA-F]{64}")


def signing_key(settings: Settings) -> bytes | None:
    """Return the farm's key; None where messages stay on this machine and none is set.

    Raises:
        InvalidSpec: there has to be one and is none, or the file does not hold one.
    """
    if settings.signing_key_file is not None:
        return read_signing_key(settings.signing_key_file)
    if is_local_broker(settings.broker_url):
        return None
    shown = redact(settings.broker_url)
    raise InvalidSpec(
        _NAME,
        None,
        f"the file with the farm's signing key, since the broker {shown} is beyond this machine: "
        "name a file, and `farm agent add NAME` makes it",
    )


def read_signing_key(path: Path) -> bytes:
    """Read the key. Raises InvalidSpec: the file cannot be read, is open to all, or holds none."""
    try:
        mode, text = path.stat().st_mode, path.read_text().strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        expected = f"a file that this process can read ({reason}); `farm agent add NAME` makes it"
        raise InvalidSpec(_NAME, str(path), expected) from None
    if mode & stat.S_IRWXO:
        expected = "a file that only its owner and group can open: chmod o= FILE"
        raise InvalidSpec(_NAME, str(path), expected)
    if not _HEX.fullmatch(text):
        expected = f"a file with {2 * KEY_BYTES} hexadecimal digits, as `openssl rand -hex 32` has"
        raise InvalidSpec(_NAME, str(path), expected)
    return bytes.fromhex(text)


def make_signing_key(path: Path) -> bytes:
    """Write a new key into a file that is not there yet, for its owner alone; return the key.

    Raises:
        InvalidSpec: the file cannot be written.
    """
    key = secrets.token_bytes(KEY_BYTES)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(key.hex() + "\n")
            file.flush()
            os.fsync(descriptor)
    except OSError as error:
        expected = f"a file that can be made there ({error.strerror})"
        raise InvalidSpec(_NAME, str(path), expected) from None
    return key
