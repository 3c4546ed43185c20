"""How long attempts have been under way, whatever is done to the server's clock."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

_MOST_ATTEMPTS = 20_000


class ElapsedTimes:
    """Remembers of each attempt how long it had been under way, and when that was.

    When the wall clock is set back, it says that an attempt has had less time than it had, and the
    samples of an honest rank would be refused. So the time that this process has seen pass by its
    monotonic clock counts where it is more.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: OrderedDict[int, tuple[float, float]] = OrderedDict()

    def __call__(self, token: int, by_wall_s: float) -> float:
        """Return the time since an attempt was leased; `by_wall_s`: what the wall clock says."""
        now_s, elapsed_s = self._clock(), by_wall_s
        if token in self._seen:
            before_s, at_s = self._seen.pop(token)
            elapsed_s = max(elapsed_s, before_s + (now_s - at_s))
        self._seen[token] = elapsed_s, now_s
        if len(self._seen) > _MOST_ATTEMPTS:
            self._seen.popitem(last=False)
        return elapsed_s
