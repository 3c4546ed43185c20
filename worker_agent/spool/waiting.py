"""How much the spool holds back, and for how long the oldest of it has waited.

Reports carry no instants, so the newest number is noted now and then: what lies beyond a note
came later. Pure; instants are readings of one monotonic clock.
"""

from __future__ import annotations

from collections import deque

# Notes of an outage of days would fill the memory. The first one tells the age of the oldest.
_MOST_NOTES = 1000


class Waiting:
    """Ages of unconfirmed reports, too low by the time between two looks at most."""

    def __init__(self) -> None:
        self._notes: deque[tuple[int, float]] = deque()  # a newest number, and when it was seen

    def oldest_s(self, *, confirmed: int, last_number: int, now: float) -> float | None:
        """Return how long the oldest unconfirmed report has waited; None where nothing waits."""
        while self._notes and self._notes[0][0] <= confirmed:
            self._notes.popleft()
        newest = self._notes[-1][0] if self._notes else confirmed
        if newest < last_number:
            if len(self._notes) == _MOST_NOTES:
                self._notes.pop()
            self._notes.append((last_number, now))
        return now - self._notes[0][1] if self._notes else None
