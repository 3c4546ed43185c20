"""Decides when to send a heartbeat, and when a lease without answers has expired.

Pure: the caller passes every instant, a reading of one monotonic clock.
"""

from __future__ import annotations

from farm.messages.agents import BeatEcho
from farm.messages.commands import BeatConfirmed

# An unanswered beat is repeated early, since half a lease has room for only two regular ones and
# one lost message must not cost a rank.
RETRY_SHARE = 0.4
# A server that was silent for long is not being restarted but gone; with slow beats what waits
# for it in the broker stays small.
SILENT_AFTER_S = 60.0
SLOW_INTERVAL_S = 30.0
# How long a server has to answer the beats that the broker takes, before its silence is logged.
WARN_AFTER_S = 20.0
WARN_EVERY_S = 600.0
_REMEMBERED_BEATS = 64
_AT_ONCE = float("-inf")


class HeartbeatSchedule:
    """The heartbeats of one agent process, which `boot_id` names."""

    def __init__(self, *, boot_id: str, interval_s: float, lease_s: float, now: float) -> None:
        self.boot_id = boot_id
        self._interval_s = interval_s
        self._hasty_for_s = lease_s / 2
        self._counter = 0
        self._due_at = now
        self._sent_at: dict[int, float] = {}
        self._confirmed_counter = 0
        self._alive_at = now  # when the newest confirmed beat was made, or this life began
        self._heard: tuple[float, float] | None = None  # server's time, and when it arrived
        self._unheeded_since: float | None = None  # the first unconfirmed beat that the broker took
        self._warned_at: float | None = None

    def next(self, *, now: float) -> int:
        """Return the counter of a beat made now, and plan the one after it."""
        self._counter += 1
        self._sent_at[self._counter] = now
        self._sent_at.pop(self._counter - _REMEMBERED_BEATS, None)
        self._due_at = now + self._pause_s(now)
        return self._counter

    def taken(self, *, now: float) -> None:
        """Note that the broker has taken a beat."""
        if self._unheeded_since is None:
            self._unheeded_since = now

    def silence_s(self, *, now: float) -> float | None:
        """Return for how long the server has not answered beats that the broker took.

        None where that need not be logged now: it is not long yet, or was logged lately.
        """
        since = self._unheeded_since
        if since is None or now - since < WARN_AFTER_S:
            return None
        if self._warned_at is not None and now - self._warned_at < WARN_EVERY_S:
            return None
        self._warned_at = now
        return now - since

    def send_soon(self) -> None:
        """Make the next beat due at once: something changed that the server should know."""
        self._due_at = _AT_ONCE

    def due_in_s(self, *, now: float) -> float:
        """Return the seconds until the next beat; 0 when it is due."""
        return max(0.0, self._due_at - now)

    def confirm(self, confirmation: BeatConfirmed, *, now: float) -> bool:
        """Take the server's answer; False when it is of another life or older than one known."""
        if confirmation.boot_id != self.boot_id:
            return False
        if not self._confirmed_counter < confirmation.counter <= self._counter:
            return False
        self._confirmed_counter = confirmation.counter
        self._unheeded_since = self._warned_at = None
        # The lease was renewed when the beat reached the server, so not before it was made.
        self._alive_at = self._sent_at.get(confirmation.counter, self._alive_at)
        is_first = self._heard is None
        self._heard = (confirmation.server_time_s, now)
        if is_first:
            # Only the next beat can prove its freshness, and until then nothing is leased here.
            self.send_soon()
        elif self._confirmed_counter == self._counter and self._due_at > _AT_ONCE:
            self._due_at = self._alive_at + self._interval_s
        return True

    def echo(self, *, now: float) -> BeatEcho | None:
        """Return the proof of freshness for a beat made now; None before the first answer."""
        if self._heard is None:
            return None
        server_time_s, heard_at = self._heard
        return BeatEcho(server_time_s=server_time_s, elapsed_s=now - heard_at)

    def unconfirmed_s(self, *, now: float) -> float:
        """Return for how long no beat made by this agent is known to have arrived."""
        return now - self._alive_at

    def is_server_silent(self, *, now: float) -> bool:
        """Whether the server was not heard for so long that haste helps nobody."""
        return self.unconfirmed_s(now=now) > SILENT_AFTER_S

    def _pause_s(self, now: float) -> float:
        if self.is_server_silent(now=now):
            return max(SLOW_INTERVAL_S, self._interval_s)
        if self.unconfirmed_s(now=now) >= self._hasty_for_s:
            # There is no rank left to save. Were everybody hasty now, a server that is behind
            # would stay so for ever: it answers each beat only when that proves nothing any more.
            return self._interval_s
        return self._interval_s * RETRY_SHARE
