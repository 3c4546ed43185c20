"""Limits how many ranks are started per second.

A farm that has just come up could lease all of its agents in one round. Their thousands of messages
would then reach the collectors within a second, what is not answered in time is sent again, and
what is late ends attempts: all gangs start sooner when they do not start at once. And no gang is
started while many of the ranks under way have to be asked twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field

HOLD_S = 1.0
# More than the lost messages and dead machines of one moment.
MOST_ASKED_TWICE = 16


@dataclass(slots=True, kw_only=True)
class StartPace:
    """Ranks: some `burst` at once, and `per_s` in the long run. Instants in seconds, of one clock.

    Some 33 a second keep a thousand agents at work with jobs of half a minute.
    """

    per_s: float = 64.0
    burst: int = 256
    _left: float = field(init=False)
    _at_s: float | None = None
    _held_until_s: float | None = None

    def __post_init__(self) -> None:
        self._left = float(self.burst)

    def may_start(self, *, now_s: float) -> bool:
        """Whether a gang may start now, of whatever width: those after it wait for as much longer.

        A clock that jumps back takes nothing away. A hold also applies to a caller that
        read the clock just before it was set.
        """
        passed_s = 0.0 if self._at_s is None else max(0.0, now_s - self._at_s)
        self._at_s = now_s
        self._left = min(float(self.burst), self._left + passed_s * self.per_s)
        if self._held_until_s is not None and 0.0 < self._held_until_s - now_s <= 2 * HOLD_S:
            return False
        return self._left >= 1.0

    def took(self, agent_count: int) -> None:
        """Take notice of so many ranks that have started."""
        self._left -= agent_count

    def asked_twice(self, agent_count: int, *, now_s: float) -> None:
        """Take notice of so many ranks that have not answered in time what takes a second."""
        if agent_count > MOST_ASKED_TWICE:
            self._held_until_s = now_s + HOLD_S
