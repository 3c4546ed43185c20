"""The envelope of everything that travels between the server and its agents.

Server to agent: *commands* (`farm.core.commands`), one Celery task name each. Agent to server:
*reports* (`farm.core.reports`), which are confirmed, and *heartbeats* (`farm.core.agents`), which
expire. A message of another version is refused, never guessed at.
"""

from __future__ import annotations

from farm.core.codec import from_json, to_json
from farm.errors import InvalidSpec

WIRE_VERSION = 5


def seal(message: object) -> dict[str, object]:
    """Wrap a message for the wire, with its version."""
    return {"version": WIRE_VERSION, "message": to_json(message)}


def unseal(kind: type, envelope: object) -> object:
    """Unwrap what `seal` made, as a `kind`.

    Raises:
        InvalidSpec: another version, or a message that is not a `kind`.
    """
    if not isinstance(envelope, dict) or "message" not in envelope:
        raise InvalidSpec("envelope", envelope, "a table with version and message")
    if envelope.get("version") != WIRE_VERSION:
        raise InvalidSpec("version", envelope.get("version"), f"wire version {WIRE_VERSION}")
    return from_json(kind, envelope["message"])
