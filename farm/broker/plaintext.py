"""Decides which broker connections may be made without TLS."""

from __future__ import annotations

from dataclasses import dataclass, fields

FARM_PLAINTEXT = "FARM_PLAINTEXT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plaintext:
    """Connections that anyone on the network between may read and change; none by default."""

    broker: bool = False
    database: bool = False
    web: bool = False

    def __str__(self) -> str:
        """Return the text that `parse_plaintext` reads; "" for nothing, as if it was not given."""
        return ",".join(field.name for field in fields(self) if getattr(self, field.name))


def parse_plaintext(text: str) -> Plaintext:
    """Read a list such as "broker,database". Raises ValueError."""
    known = [field.name for field in fields(Plaintext)]
    given = [word.strip().lower() for word in text.split(",")]
    if not set(given) <= set(known):
        raise ValueError(f"any of {','.join(known)}, with commas between them")
    return Plaintext(**dict.fromkeys(given, True))
