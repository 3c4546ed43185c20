"""The keys that sign messages: one for each agent, derived from the farm's key.

An HMAC needs its key in clear on both sides. If the store contained the agents' keys, a copy of the
store would reveal them all. So they are derived (HKDF, RFC 5869) from one key in a file of the
server. The store only contains which of them are valid: a number for each agent, which grows with
every new key, and whether the agent was removed. So the key of one agent can be replaced or revoked
alone, and a stolen key reveals nothing about the others.
"""

from __future__ import annotations

import base64
import datetime as dt
import enum
import hashlib
import hmac
import re
from dataclasses import dataclass, field

from farm.errors import InvalidSpec
from farm.messages.agents import check_agent_id

KEY_BYTES = 32
_PREFIX = "bfk_"
_KEY = re.compile(r"bfk_([1-9][0-9]{0,8})_([A-Za-z0-9_-]{43})")
_EXPECTED = "a key as `farm agent add NAME` prints it on the server"


class KeyPurpose(enum.Enum):
    """The purpose of a secret. Knowing one secret reveals no other."""

    SIGNING = "signing"
    BROKER = "broker password"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentKey:
    """`number`: which of the agent's keys this is, from 1."""

    number: int
    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.secret) != KEY_BYTES:
            raise ValueError(f"a key has {KEY_BYTES} bytes and not {len(self.secret)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRecord:
    """Which of an agent's keys count. The one before counts until `previous_until`."""

    agent_id: str
    number: int
    previous_until: dt.datetime | None = None
    revoked_at: dt.datetime | None = None

    def accepted(self, *, now: dt.datetime) -> tuple[int, ...]:
        """Return the numbers of the keys that count now, the newest first."""
        if self.revoked_at is not None:
            return ()
        if self.previous_until is not None and now < self.previous_until:
            return (self.number, self.number - 1)
        return (self.number,)


def derive_key(
    farm_key: bytes, agent_id: str, number: int, *, purpose: KeyPurpose = KeyPurpose.SIGNING
) -> AgentKey:
    """Return an agent's key with that number. `farm_key`: `KEY_BYTES` random bytes."""
    # The number and the purpose have no ':', and the name comes last: no two texts are the same.
    info = f"benchfarm agent:{purpose.value}:{number}:{check_agent_id(agent_id)}"
    return AgentKey(number=number, secret=hkdf(farm_key, info=info.encode()))


def hkdf(key: bytes, *, info: bytes, salt: bytes = b"") -> bytes:
    """Derive 32 bytes by HKDF with SHA-256 (RFC 5869): extract, and the first block of expand."""
    extracted = hmac.digest(salt or bytes(hashlib.sha256().digest_size), key, hashlib.sha256)
    return hmac.digest(extracted, info + b"\x01", hashlib.sha256)


def key_text(key: AgentKey) -> str:
    """Write a key as an agent is given it."""
    return f"{_PREFIX}{key.number}_{secret_text(key)}"


def secret_text(key: AgentKey) -> str:
    """Write the secret alone, in letters that need no escaping in a URL."""
    return base64.urlsafe_b64encode(key.secret).rstrip(b"=").decode()


def read_key(text: str, *, name: str = "AGENT_KEY") -> AgentKey:
    """Parse the text of `key_text`. An invalid key is not repeated: it may be mistyped.

    Raises:
        InvalidSpec: it is not a key.
    """
    found = _KEY.fullmatch(text)
    if found is None:
        raise InvalidSpec(name, f"{len(text)} other characters", _EXPECTED)
    return AgentKey(number=int(found[1]), secret=base64.urlsafe_b64decode(found[2] + "="))
