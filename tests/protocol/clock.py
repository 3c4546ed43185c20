"""Simulated time, and the clocks that go by it."""

from __future__ import annotations


class Clock:
    """True time, and in the place of the module `time` the two clocks of the agent at work.

    `offset_s`: how far its monotonic clock is ahead of true time; `skew_s`: how far its calendar
    is.
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        self.offset_s = 0.0
        self.skew_s = 0.0

    def monotonic(self) -> float:
        return self.now_s + self.offset_s

    def time(self) -> float:
        return self.now_s + self.skew_s
