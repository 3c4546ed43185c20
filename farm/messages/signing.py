"""Signs messages and checks signatures: sender, receiver and content.

The text of the message is signed and sent, so the receiver checks exactly the characters that it
will parse. The alternative would be to parse the message, write it again in a canonical form, and
check that. Then both programs would have to write numbers alike, a stranger's message would be
parsed before its sender is known, and it would cost more.

The signature is an HMAC with SHA-256 over the text and its purpose: the wire version, the
direction, the agent, the number of its key, and the kind of the message. So a message to one agent
is invalid for another agent, as an answer, and as another command. Repeated and late messages have
valid signatures: fencing tokens, report numbers and heartbeat counters protect against them, as
without signatures.

While a new key replaces an old one, the server signs with both, since it does not know which one
the agent has.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import json
from collections.abc import Collection
from typing import cast

from farm.errors import InvalidSpec
from farm.messages.agent_keys import AgentKey
from farm.messages.agents import check_agent_id
from farm.messages.envelope import WIRE_VERSION, check_version
from farm.values.codec import parsed

_SIGNED_FIELDS = {"version", "agent_id", "signed", "signatures"}
_MOST_SIGNATURES = 4


class MessageDirection(enum.Enum):
    TO_AGENT = "to agent"
    TO_SERVER = "to server"


def sign(
    envelope: dict[str, object],
    keys: Collection[AgentKey],
    *,
    agent_id: str,
    direction: MessageDirection,
    kind: str,
) -> dict[str, object]:
    """Return what `seal` made with a signature by each of an agent's keys.

    `kind`: the name of the Celery task that takes it.
    """
    text = json.dumps(envelope["message"], separators=(",", ":"), allow_nan=False)
    return {
        "version": envelope["version"],
        "agent_id": agent_id,
        "signed": text,
        "signatures": {
            str(key.number): _signature(text, key, agent_id, direction=direction, kind=kind)
            for key in keys
        },
    }


def is_signed(envelope: object) -> bool:
    """Whether it looks like what `sign` makes, which proves nothing."""
    return isinstance(envelope, dict) and "signed" in envelope


def claimed_agent(envelope: object) -> str | None:
    """Return the agent that a message, signed or not, names as its own; None: there is none."""
    if not isinstance(envelope, dict):
        return None
    message = envelope.get("message")
    named = envelope if "signed" in envelope else message
    agent_id = named.get("agent_id") if isinstance(named, dict) else None
    try:
        return check_agent_id(agent_id) if isinstance(agent_id, str) else None
    except InvalidSpec:
        return None


def verified(
    envelope: object,
    keys: Collection[AgentKey],
    *,
    agent_id: str,
    direction: MessageDirection,
    kind: str,
) -> dict[str, object]:
    """Return the text that was passed to `sign`, if one of the agent's keys has signed it.

    Raises:
        InvalidSpec: it has no signature, or another's, or is of another wire version.
    """
    text, signatures = _parts(envelope, agent_id)
    for key in keys:
        expected = _signature(text, key, agent_id, direction=direction, kind=kind)
        given = signatures.get(str(key.number))
        if isinstance(given, str) and given.isascii() and hmac.compare_digest(given, expected):
            return {"version": WIRE_VERSION, "message": parsed(text, where="signed")}
    numbers = ", ".join(str(key.number) for key in keys) or "none, since none counts"
    held = ", ".join(str(name)[:9] for name in signatures) or "none"
    raise InvalidSpec("signature", f"a signature by {held}", f"one by the agent's key {numbers}")


def _parts(envelope: object, agent_id: str) -> tuple[str, dict[object, object]]:
    if not isinstance(envelope, dict):
        raise InvalidSpec("envelope", type(envelope).__name__, "a table")
    check_version(envelope)
    if not is_signed(envelope):
        raise InvalidSpec("signature", None, "a signed message")
    text, signatures = envelope.get("signed"), envelope.get("signatures")
    if set(envelope) != _SIGNED_FIELDS or not isinstance(text, str):
        raise InvalidSpec("envelope", sorted(map(str, envelope)), "what is signed, as a text")
    if not isinstance(signatures, dict) or len(signatures) > _MOST_SIGNATURES:
        raise InvalidSpec("signatures", signatures, "a table of a few signatures")
    if envelope.get("agent_id") != agent_id:
        raise InvalidSpec("agent_id", envelope.get("agent_id"), f"{agent_id!r}, whose key counts")
    return text, cast("dict[object, object]", signatures)


def _signature(
    text: str, key: AgentKey, agent_id: str, *, direction: MessageDirection, kind: str
) -> str:
    # None of them holds a line break, so no two lists of them have the same text.
    meant_for = f"benchfarm\n{WIRE_VERSION}\n{direction.value}\n{agent_id}\n{key.number}\n{kind}\n"
    # Half a surrogate pair is in no text of ours, but an answer must be had for each.
    signed = (meant_for + text).encode(errors="surrogatepass")
    return hmac.digest(key.secret, signed, hashlib.sha256).hex()
