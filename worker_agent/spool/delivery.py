"""Decides when to send which reports: one batch at a time, repeated after a pause.

Reports that only continue a series are gathered for `GATHER_S`. Every message costs a commit, a
sync of the spool and three wake-ups, on machines that are measured. Sent one by one, the messages
took 4.7 % of a core from a gang of two on the server's machine; gathered, 3.2 %.

Pure but for the spool it reads. Instants are readings of one monotonic clock.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from farm.messages.agents import Backlog
from farm.messages.commands import Confirm
from farm.messages.reports import Report, ReportBatch

BATCH_REPORTS = 500
BATCH_BYTES = 256 * 1024
GATHER_S = 3.0
# More reports than a rank makes in that time are a backlog. Its batches are sent as they are
# confirmed, with a pause of this many times the collectors' time for the last batch. Otherwise, if
# a hundred agents return at once, most of their batches would be ahead of everybody's new reports.
# `MOST_REST_S` limits the pause, since a gang may wait for its verdict, or a stopping agent for its
# last reports.
MOST_GATHERED = 20
REST_RATIO = 3.0
MOST_REST_S = 1.5
# While the server is silent a batch is repeated only this often: each repetition stays in the
# broker, and a thousand agents repeating for a night would fill it.
SILENT_PAUSE_S = 300.0
# Of the wait for a confirmation, and how much a new one counts for its mean and deviation.
LEAST_S = 2.0
MOST_S = 30.0
_NEW_SHARE_OF_MEAN = 1 / 8
_NEW_SHARE_OF_DEVIATION = 1 / 4
# Notes of an outage of days would fill the memory. The first one tells the age of the oldest.
_MOST_NOTES = 1000


class Unconfirmed(Protocol):
    """What is asked of a spool: see `worker_agent.spool.spool.Spool`."""

    generation: str

    @property
    def confirmed(self) -> int: ...
    @property
    def last_number(self) -> int: ...
    @property
    def unconfirmed_bytes(self) -> int: ...
    @property
    def has_urgent(self) -> bool: ...
    def pending(self, *, limit: int, max_bytes: int) -> tuple[Report, ...]: ...
    def confirm(self, generation: str, number: int) -> None: ...


class Delivery:
    """Brings the spool's reports to the collector, each at least once and in order."""

    def __init__(self, spool: Unconfirmed, *, agent_id: str) -> None:
        self._spool = spool
        self._agent_id = agent_id
        self._under_way: int | None = None  # last number of the batch sent and not yet confirmed
        self._round_trip = RoundTrip()
        self._is_repeated = False  # what is under way was sent more than once
        self._sent_at = float("-inf")
        self._rested_at = float("-inf")  # when the next batch of a backlog may go
        self._waiting = Waiting()

    @property
    def is_empty(self) -> bool:
        """Whether every report is confirmed."""
        return self._spool.confirmed == self._spool.last_number

    def next_batch(self, *, now: float, server_is_silent: bool) -> ReportBatch | None:
        """Return what should be sent now, if anything, and count it as sent."""
        if self.due_in_s(now=now, server_is_silent=server_is_silent) > 0:
            return None
        reports = self._spool.pending(limit=BATCH_REPORTS, max_bytes=BATCH_BYTES)
        if not reports:
            return None
        self._is_repeated = self._under_way is not None
        if self._is_repeated:
            self._round_trip.note_timeout()
        self._under_way = reports[-1].number
        self._sent_at = now
        return ReportBatch(
            agent_id=self._agent_id, generation=self._spool.generation, reports=reports
        )

    def due_in_s(self, *, now: float, server_is_silent: bool) -> float:
        """Return the seconds until something should be sent; infinity when nothing waits."""
        if self.is_empty:
            return float("inf")
        if self._under_way is not None:
            due_at = self._sent_at + (
                SILENT_PAUSE_S if server_is_silent else self._round_trip.limit_s
            )
        elif self._spool.has_urgent and self._waiting_count <= BATCH_REPORTS:
            due_at = now
        elif self._waiting_count > MOST_GATHERED:
            due_at = self._rested_at
        else:
            due_at = self._sent_at + GATHER_S
        return max(0.0, due_at - now)

    @property
    def _waiting_count(self) -> int:
        return self._spool.last_number - self._spool.confirmed

    def backlog(self, *, now: float) -> Backlog:
        """Return what is not confirmed. Asked now and then, it knows for how long that has been."""
        confirmed, last = self._spool.confirmed, self._spool.last_number
        return Backlog(
            report_count=last - confirmed,
            byte_count=self._spool.unconfirmed_bytes,
            oldest_s=self._waiting.oldest_s(confirmed=confirmed, last_number=last, now=now),
        )

    def confirm(self, confirmation: Confirm, *, now: float) -> None:
        """Let the spool forget what is stored; the next batch may go."""
        self._spool.confirm(confirmation.generation, confirmation.number)
        if self._under_way is not None and self._spool.confirmed >= self._under_way:
            self._under_way = None
            took_s = now - self._sent_at
            self._rested_at = now + min(REST_RATIO * took_s, MOST_REST_S)
            if not self._is_repeated:  # or nobody knows which of the copies was answered
                self._round_trip.took(took_s)

    def start_over(self) -> None:
        """Send again at once what is under way: its carrier died or the server is back."""
        self._under_way = None
        self._round_trip = RoundTrip()
        self._sent_at = self._rested_at = float("-inf")


class RoundTrip:
    """How long to wait for a confirmation before its batch is sent again.

    An overloaded server confirms late. Repeating a batch after a fixed pause would double its work,
    and it could never catch up. So the pause follows the time that confirmations take: their mean
    plus four times their deviation, as in TCP (RFC 6298). A pause that was too short doubles, until
    a batch that was sent once is confirmed (Karn and Partridge 1987). The time of a repeated batch
    is not used, since it is not known which copy was confirmed.
    """

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

    def note_timeout(self) -> None:
        """Learn that the limit passed without a confirmation."""
        self.limit_s = min(2 * self.limit_s, MOST_S)


class Waiting:
    """Ages of unconfirmed reports, too low by the time between two looks at most.

    Reports carry no instants, so the newest number is noted now and then: what lies beyond a note
    came later.
    """

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
