"""Computes when bytes that enter an emulated link leave it. Pure: the caller passes every instant.

Instants are readings of one monotonic clock, in seconds.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from farm.configuration.spec import NetworkProfile
from farm.gang.transfers import SEGMENT_BYTES

# Without a limit one read may take what a socket's buffer holds; with one, what passes in this
# time, so that the bytes arrive as a stream and not in heaps.
_LARGEST_READ_BYTES = 256 * 1024
_SMALLEST_READ_BYTES = SEGMENT_BYTES
_READ_S = 0.002
# What is under way on a link is its bandwidth times its delay, and a little to work with. An
# unlimited link is taken for one of 10 Gbit/s.
ASSUMED_BYTES_PER_S = 1.25e9
_SLACK_BYTES = 256 * 1024
_SLACK_S = 0.01
_LARGEST_BUFFER_BYTES = 32 * 2**20


class StreamEnd(enum.Enum):
    """How a stream ends, after its last byte."""

    END = "end"
    RESET = "reset"


class Pipe:
    """The bandwidth towards one peer, or from it, which all connections there share."""

    def __init__(self, bytes_per_s: float | None) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_at = 0.0

    def send(self, byte_count: int, *, now: float) -> float:
        """Return when the last of these bytes has left, if they follow all before them."""
        if self._bytes_per_s is None:
            return now
        self._free_at = max(now, self._free_at) + byte_count / self._bytes_per_s
        return self._free_at


@dataclass(frozen=True, slots=True)
class Due:
    at: float
    item: bytes | StreamEnd


class DelayLine:
    """One direction of one connection: bytes come out in their order, each after its delay."""

    def __init__(
        self,
        profile: NetworkProfile,
        pipe: Pipe,
        *,
        not_before: float,
        uniform: Callable[[float, float], float],
    ) -> None:
        """Nothing comes out before `not_before`; `uniform` draws the jitter between two values."""
        self._delay_s = profile.one_way_delay_s
        self._jitter_s = profile.jitter_s
        self._pipe = pipe
        self._last_at = not_before
        self._uniform = uniform
        self._queue: deque[Due] = deque()
        self._bytes = 0
        self.read_bytes, self._most_bytes = _sizes(profile)

    @property
    def is_full(self) -> bool:
        """Whether it accepts no more for now, so the sender must wait."""
        return self._bytes >= self._most_bytes

    @property
    def due_at(self) -> float | None:
        """When the next item comes out; None if it is empty."""
        return self._queue[0].at if self._queue else None

    def put(self, item: bytes | StreamEnd, *, now: float) -> None:
        """Add bytes or an end that have just been sent."""
        size = len(item) if isinstance(item, bytes) else 0
        delay_s = self._delay_s
        if self._jitter_s:
            delay_s = max(0.0, delay_s + self._uniform(-self._jitter_s, self._jitter_s))
        # TCP hands on in order, so what overtakes waits for what was sent before it.
        self._last_at = max(self._last_at, self._pipe.send(size, now=now) + delay_s)
        self._queue.append(Due(self._last_at, item))
        self._bytes += size

    def take(self, *, now: float) -> bytes | StreamEnd | None:
        """Return the next item that is due by now; None if there is none."""
        if not self._queue or self._queue[0].at > now:
            return None
        item = self._queue.popleft().item
        if isinstance(item, bytes):
            self._bytes -= len(item)
        return item

    def put_back(self, rest: bytes) -> None:
        """Put back bytes that the receiver did not accept; they come out first, and at once."""
        self._queue.appendleft(Due(0.0, rest))
        self._bytes += len(rest)


def _sizes(profile: NetworkProfile) -> tuple[int, int]:
    """Return how many bytes to read at once, and how many may be in flight."""
    bandwidth = profile.bandwidth_bytes_per_s
    longest_s = profile.one_way_delay_s + profile.jitter_s
    if bandwidth is None:
        under_way = ASSUMED_BYTES_PER_S * longest_s + _SLACK_BYTES
        return _LARGEST_READ_BYTES, int(min(_LARGEST_BUFFER_BYTES, under_way))
    read_bytes = min(_LARGEST_READ_BYTES, max(_SMALLEST_READ_BYTES, bandwidth * _READ_S))
    # A longer queue would keep a short message of another connection waiting.
    under_way = bandwidth * (longest_s + _SLACK_S) + 2 * read_bytes
    return int(read_bytes), int(min(_LARGEST_BUFFER_BYTES, under_way))
