"""How long to wait for a confirmation before its batch is sent again. Pure.

A server that is behind confirms late. Whoever then repeats after a fixed pause gives it twice the
work just when it cannot do what it has, and it stays behind for good. So the pause follows what
confirmations take: their mean and four times their deviation, as TCP has it (RFC 6298). One that
turned out too short doubles, and stays so until a batch that was sent only once has been confirmed
(Karn and Partridge 1987): the time of one that was repeated says nothing.
"""

from __future__ import annotations

LEAST_S = 2.0
MOST_S = 30.0
_NEW_SHARE_OF_MEAN = 1 / 8
_NEW_SHARE_OF_DEVIATION = 1 / 4


class RoundTrip:
    """From sending a batch to its confirmation, as far as it is known."""

    def __init__(self) -> None:
        self.limit_s = LEAST_S
        self._mean_s: float | None = None
        self._deviation_s = 0.0

    def took(self, time_s: float) -> None:
        """Learn from a batch that was sent once and is confirmed."""
        if self._mean_s is None:
            self._mean_s, self._deviation_s = time_s, time_s / 2
        else:
            off_s = abs(time_s - self._mean_s)
            self._deviation_s += _NEW_SHARE_OF_DEVIATION * (off_s - self._deviation_s)
            self._mean_s += _NEW_SHARE_OF_MEAN * (time_s - self._mean_s)
        self.limit_s = min(max(self._mean_s + 4 * self._deviation_s, LEAST_S), MOST_S)

    def was_too_short(self) -> None:
        """Learn that the limit passed without a confirmation."""
        self.limit_s = min(2 * self.limit_s, MOST_S)
