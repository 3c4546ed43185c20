"""How long a stopping agent waits for its rank. Pure: every instant is handed in."""

from __future__ import annotations

# The rank's processes need a moment to die, and what it reports one to be sent.
LEAVE_LIMIT_S = 8.0
FLUSH_LIMIT_S = 2.0


class Departure:
    """From the wish to leave to its end; instants are readings of the monotonic clock."""

    def __init__(self) -> None:
        self._begun_s: float | None = None
        self._flush_until_s = 0.0

    @property
    def has_begun(self) -> bool:
        return self._begun_s is not None

    def begin(self, *, now: float) -> None:
        self._begun_s = now
        self._flush_until_s = now + FLUSH_LIMIT_S

    def is_over(self, *, now: float, is_serving: bool, is_sent: bool) -> bool:
        """Whether nothing is left to do, or no time to do it."""
        if self._begun_s is None:
            return False
        if is_serving:
            self._flush_until_s = now + FLUSH_LIMIT_S
            return now - self._begun_s > LEAVE_LIMIT_S
        return is_sent or now > self._flush_until_s
