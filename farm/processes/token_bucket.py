"""A token bucket: limits how often something is done."""

from __future__ import annotations


class TokenBucket:
    """Allows `burst` at once after a pause, and `per_minute` in the long run. For one thread.

    Times are readings of a monotonic clock, in seconds.
    """

    def __init__(self, burst: float, per_minute: float) -> None:
        self._burst, self._per_s = float(burst), per_minute / 60
        self._left, self._at_s = self._burst, float("-inf")

    def left(self, now_s: float) -> float:
        """Return how much may be taken now; below 0 if more was taken than there was."""
        self._left = min(self._burst, self._left + (now_s - self._at_s) * self._per_s)
        self._at_s = now_s
        return self._left

    def take(self, amount: float, now_s: float) -> None:
        """Take an amount, whether it is there or not."""
        self._left = self.left(now_s) - amount
