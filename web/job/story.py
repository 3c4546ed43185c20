"""The history of a job in plain words: events, times and reasons, by attempt.

Pure.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field

from farm.gang.lifecycle import ACTIVE_ATTEMPT_STATES
from farm.store.sweeps.jobs import Story
from farm.store.tables import AttemptRow, JobEvent

# What an event means, for readers who do not know the states.
_MEANINGS = {
    "job: waiting": "back in the queue",
    "job: leased": "a gang was leased",
    "job: running": "every rank has done its first step",
    "job: cancel requested": "its cancellation was requested",
    "job: succeeded": "the job is measured",
    "job: failed": "the job failed",
    "job: cancelled": "the job was cancelled",
    "attempt: measuring": "every rank is prepared; they time the untouched network",
    "attempt: shaping": "the network is made what was asked for, and verified",
    "attempt: starting": "training starts: the trainers connect",
    "attempt: succeeded": "every rank is done",
    "attempt: failed": "the configuration failed, which is a result",
    "attempt: lost": "a machine failed",
    "attempt: void": "it did not run under the conditions it claims",
    "attempt: cancelled": "the gang was let go",
}
_QUEUED = "job: waiting"
# These are of the job, and not of the attempt that they name.
_OF_JOB = frozenset(
    {"job: waiting", "job: succeeded", "job: failed", "job: cancelled"},
)
_BAD = frozenset({"job: failed", "attempt: failed", "attempt: lost", "attempt: void"})
_GOOD = frozenset({"job: succeeded", "attempt: succeeded"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Something that happened. `after_s`: how long after what was before it in the attempt."""

    at: dt.datetime
    event: str
    meaning: str
    reason: str | None
    tone: str
    after_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStory:
    """`is_open`: its fold is, unless the reader closes it. `lasted_s` None: it goes on."""

    attempt: AttemptRow
    entries: list[Entry] = field(default_factory=list)
    lasted_s: float | None
    is_open: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """One thing of the job itself, or one attempt; exactly one of the two is set."""

    entry: Entry | None = None
    attempt: AttemptStory | None = None


def told(story: Story) -> list[Chapter]:
    """Return the chapters of a story in the order in which they began."""
    attempts = {one.id: _attempt_story(one, story) for one in story.attempts}
    chapters: list[Chapter] = []
    events = list(story.events)
    if not story.is_cut:
        chapters.append(Chapter(entry=_submitted(story)))
        if events and events[0].event == _QUEUED and events[0].attempt_id is None:
            del events[0]  # that is the same
    opened: set[int] = set()
    for event in events:
        own = attempts.get(event.attempt_id) if event.attempt_id is not None else None
        if own is not None and own.attempt.id not in opened:
            opened.add(own.attempt.id)
            chapters.append(Chapter(attempt=own))
        if own is None or event.event in _OF_JOB:
            chapters.append(Chapter(entry=_entry(event)))
        else:
            before = own.entries[-1].at if own.entries else None
            own.entries.append(_entry(event, before=before))
    # An attempt whose events are missing, such as one copied from elsewhere, is shown too.
    chapters += [Chapter(attempt=one) for token, one in attempts.items() if token not in opened]
    return chapters


def _attempt_story(attempt: AttemptRow, story: Story) -> AttemptStory:
    ended_at = attempt.ended_at
    return AttemptStory(
        attempt=attempt,
        lasted_s=None if ended_at is None else (ended_at - attempt.leased_at).total_seconds(),
        is_open=attempt.state in ACTIVE_ATTEMPT_STATES or attempt is story.attempts[-1],
    )


def _submitted(story: Story) -> Entry:
    return Entry(
        at=story.job.created_at,
        event="job: submitted",
        meaning=f"with the sweep {story.sweep_name}",
        reason=None,
        tone="",
    )


def _entry(event: JobEvent, *, before: dt.datetime | None = None) -> Entry:
    tone = "bad" if event.event in _BAD else "good" if event.event in _GOOD else ""
    return Entry(
        at=event.at,
        event=event.event,
        meaning=_MEANINGS.get(event.event, ""),
        reason=event.reason,
        tone=tone,
        # Of a web server whose clock is behind the scheduler's, nothing is said.
        after_s=None
        if before is None or event.at < before
        else (event.at - before).total_seconds(),
    )
