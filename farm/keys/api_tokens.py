"""API tokens: their form, their scopes, and the hash that is stored.

A token is `bf_` and 32 random bytes as base64url; the prefix lets scanners for leaked secrets
recognise it. Only its SHA-256 is stored. A slow hash protects passwords that people choose, which
can be guessed one after the other. 256 random bits cannot be guessed, and a slow hash would slow
down every request. The time that the index takes to find a hash reveals nothing either, since
nobody can choose the hash of a guess.
"""

from __future__ import annotations

import base64
import datetime as dt
import enum
import hashlib
import re

from farm.errors import InvalidSpec
from farm.values.fields import SHORT_NAME, SHORT_NAME_EXPECTED

PREFIX = "bf_"
SECRET_BYTES = 32
_TOKEN = re.compile(r"bf_[A-Za-z0-9_-]{43}")


class Scope(enum.Enum):
    """The rights of a token. Each scope includes those before it."""

    READ = "read"  # look
    SUBMIT = "submit"  # enqueue, cancel, retry, import
    ADMIN = "admin"  # whatever there is

    def includes(self, other: Scope) -> bool:
        """Tell whether it includes the other scope."""
        order = list(Scope)
        return order.index(self) >= order.index(other)


class TokenState(enum.Enum):
    ACTIVE = "active"
    EXPIRED = "expired"
    REVOKED = "revoked"


def make_token(secret: bytes) -> str:
    """Write the token of `SECRET_BYTES` random bytes."""
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"a token is made of {SECRET_BYTES} bytes and not of {len(secret)}")
    return PREFIX + base64.urlsafe_b64encode(secret).rstrip(b"=").decode()


def is_token(text: str) -> bool:
    """Tell whether a text has the form of a token; only then can the store know it."""
    return _TOKEN.fullmatch(text) is not None


def token_hash(token: str) -> str:
    """Return the stored form of a token: its SHA-256, in hexadecimal digits."""
    return hashlib.sha256(token.encode(errors="backslashreplace")).hexdigest()


def check_token_name(name: str) -> str:
    """Return what may name a token.

    Raises:
        InvalidSpec: it may not. A token that was given instead is not repeated.
    """
    if name.startswith(PREFIX):
        raise InvalidSpec("NAME", f"{PREFIX}...", "a name, not a token")
    if not SHORT_NAME.fullmatch(name):
        raise InvalidSpec("NAME", name, SHORT_NAME_EXPECTED)
    return name


def token_state(
    *, expires_at: dt.datetime | None, revoked_at: dt.datetime | None, now: dt.datetime
) -> TokenState:
    """Return whether a token is still valid, and if not, why."""
    if revoked_at is not None:
        return TokenState.REVOKED
    if expires_at is not None and expires_at <= now:
        return TokenState.EXPIRED
    return TokenState.ACTIVE
