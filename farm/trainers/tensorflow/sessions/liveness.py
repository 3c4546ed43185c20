"""Decides which ranks are alive, from counters that each raises once a second. Pure."""

from __future__ import annotations

from collections.abc import Sequence

BEAT_INTERVAL_S = 1.0
# Two processes on one core have kept a beat waiting for one second, never for three.
SILENCE_LIMIT_S = 6.0
# In the place of a rank's count; 0: it has not come yet.
LEFT = -1  # it went as agreed
GAVE_UP = -2  # it went because somebody else was lost


class LivenessMonitor:
    """Watches what one weight host shows: that it answers at all, and the counters of all ranks."""

    def __init__(
        self,
        weight_host: str,
        *,
        world_size: int,
        arrival_limit_s: float,
        begun_s: float,
        silence_limit_s: float = SILENCE_LIMIT_S,
    ) -> None:
        self._weight_host = weight_host
        self._arrival_limit_s = arrival_limit_s
        self._silence_limit_s = silence_limit_s
        self._begun_s = begun_s
        self._answered_s: float | None = None
        self._counts = [0] * world_size
        self._silent_s = [0.0] * world_size

    def see(self, counts: Sequence[int], *, now_s: float) -> None:
        """Take in the counters that the weight host has shown at `now_s` (CLOCK_MONOTONIC)."""
        since_s = 0.0 if self._answered_s is None else now_s - self._answered_s
        # While the weight host itself was deaf, nobody could raise a counter.
        heard_s = min(since_s, 2 * BEAT_INTERVAL_S)
        for rank, count in enumerate(counts):
            is_silent = count == self._counts[rank] and count > 0
            self._silent_s[rank] = self._silent_s[rank] + heard_s if is_silent else 0.0
        self._counts = list(counts)
        self._answered_s = now_s

    def problem(self, *, now_s: float) -> str | None:
        """Return who is lost; None while all are there, or may still come, or have left."""
        if self._answered_s is None:
            if now_s - self._begun_s <= self._arrival_limit_s:
                return None
            return f"{self._weight_host} has not answered within {self._arrival_limit_s:g} s"
        if now_s - self._answered_s > self._silence_limit_s:
            return f"{self._weight_host} has not answered for {self._silence_limit_s:g} s"
        for rank, count in enumerate(self._counts):
            if count == 0 and now_s - self._begun_s > self._arrival_limit_s:
                return f"rank {rank} has not come within {self._arrival_limit_s:g} s"
            if self._silent_s[rank] > self._silence_limit_s:
                return f"rank {rank} has not been heard of for {self._silence_limit_s:g} s"
            if count == GAVE_UP:
                return f"rank {rank} gave up"
        return None

    def have_left(self, ranks: Sequence[int]) -> bool:
        """Whether all of `ranks` went as agreed."""
        return all(self._counts[rank] == LEFT for rank in ranks)
