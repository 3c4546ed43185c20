"""The envelope of every message between the server and its agents.

Server to agent: *commands* (`farm.messages.commands`), one Celery task name each. Agent to server:
*reports* (`farm.messages.reports`), which are confirmed, and *heartbeats* (`farm.messages.agents`),
which expire. A message of another version is refused, never guessed at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from farm.errors import InvalidSpec
from farm.messages.agents import check_agent_id
from farm.values.codec import from_json, to_json

WIRE_VERSION = 1


@dataclass(frozen=True, slots=True)
class UnknownVersion:
    """The sender of a message of another wire version, which cannot be read further."""

    agent_id: str
    version: int


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
    check_version(envelope)
    return from_json(kind, envelope["message"])


def check_version(envelope: Mapping[str, object]) -> None:
    """Refuse a message of another version.

    Raises:
        InvalidSpec: it is.
    """
    version = envelope.get("version")
    if version != WIRE_VERSION:
        expected = f"wire version {WIRE_VERSION}: server and agents need the same benchfarm"
        raise InvalidSpec("version", version, expected)


def unknown_version_in(envelope: object) -> UnknownVersion | None:
    """Return the sender of a report or heartbeat of another version; None if it has none.

    The version and the name are all that is read, since both have been there in every version. A
    signed message has the name beside its text.
    """
    if not isinstance(envelope, dict):
        return None
    named = envelope if "signed" in envelope else envelope.get("message")
    if not isinstance(named, dict):
        return None
    version, agent_id = envelope.get("version"), named.get("agent_id")
    if type(version) is not int or version == WIRE_VERSION or not isinstance(agent_id, str):
        return None
    try:
        return UnknownVersion(check_agent_id(agent_id), version)
    except InvalidSpec:
        return None
