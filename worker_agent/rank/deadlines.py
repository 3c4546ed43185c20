"""The limits that a rank is under, and which of them has run out. Pure: instants are handed in."""

from __future__ import annotations

from farm.messages.trainer_lines import Failure, FailureKind


class Deadlines:
    """At most one limit of each kind; setting it again moves it."""

    def __init__(self) -> None:
        self._limits: dict[FailureKind, tuple[float, str]] = {}

    def set(self, kind: FailureKind, instant: float, message: str) -> None:
        """From `instant` on the rank has failed for the reason given."""
        self._limits[kind] = (instant, message)

    def drop(self, kind: FailureKind) -> None:
        self._limits.pop(kind, None)

    def expired(self, now: float) -> Failure | None:
        """Return the failure of the limit that ran out first, or None."""
        passed = [(at, kind, text) for kind, (at, text) in self._limits.items() if now >= at]
        if not passed:
            return None
        _, kind, message = min(passed, key=lambda limit: limit[0])
        return Failure(kind=kind, message=message)
