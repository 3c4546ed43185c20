"""What a rank's steps have exchanged, added up between two looks."""

from __future__ import annotations

from collections import Counter

from farm.messages.trainer_lines import Exchange

# Counts from here on are one: a rank that was held up for seconds would make a list of thousands.
LARGEST_STALENESS = 1000


class ExchangeCount:
    """Adds up steps. `is_synchronous`: updates have no staleness."""

    def __init__(self, *, is_synchronous: bool) -> None:
        self._is_synchronous = is_synchronous
        self._clear()

    def _clear(self) -> None:
        self._step_count = self._update_count = 0
        self._push_s = self._pull_s = 0.0
        self._staleness: Counter[int] = Counter()

    def add(
        self, *, push_s: float, pull_s: float, is_update: bool, staleness: int | None = None
    ) -> None:
        """Count a step; with `is_update`, it had a part in one update, `staleness` updates late."""
        self._step_count += 1
        self._push_s += push_s
        self._pull_s += pull_s
        self._update_count += is_update
        if staleness is not None:
            self._staleness[min(staleness, LARGEST_STALENESS)] += 1

    def take(self) -> Exchange:
        """Return what was counted, and count anew."""
        steps = self._step_count
        largest = max(self._staleness, default=-1)
        counts = tuple(self._staleness[k] for k in range(largest + 1))
        found = Exchange(
            update_count=self._update_count,
            push_s=self._push_s / steps if steps else None,
            pull_s=self._pull_s / steps if steps else None,
            staleness_counts=None if self._is_synchronous else counts,
        )
        self._clear()
        return found
