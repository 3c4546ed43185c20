"""Event kinds, delivery states and signing secrets of notifications."""

from __future__ import annotations

import base64
import enum
import secrets
from dataclasses import dataclass

SECRET_PREFIX = "whsec_"
_SECRET_BYTES = 32


class EventKind(enum.StrEnum):
    """The kind of an event; the value is the `type` of the message."""

    SWEEP_FINISHED = "sweep.finished"
    SWEEP_FAILED = "sweep.failed"
    BUDGET_USED_UP = "budget.used_up"
    AGENT_LOST = "agent.lost"
    BASELINE_EXCEEDED = "baseline.exceeded"


class DeliveryState(enum.Enum):
    """What became of a message to one address."""

    WAITING = "waiting"  # to be sent, or sent again
    DELIVERED = "delivered"
    GIVEN_UP = "given_up"  # too old, or its address was removed or is gone


@dataclass(frozen=True, slots=True)
class SendOutcome:
    """How sending went.

    `is_available`: the receiver takes messages, whatever it thinks of this one. `is_gone`: it wants
    no message ever again. `pause_s`: how long it asks to be left alone.
    """

    is_delivered: bool
    is_available: bool
    description: str
    is_gone: bool = False
    pause_s: float = 0.0


def make_secret() -> str:
    """Return a new secret to sign with."""
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()
