"""Checks and stores messages from agents, and returns the answers. No broker here.

Several at once are one transaction, since its commit is most of what a small message costs.
"""

from __future__ import annotations

import datetime as dt
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence

from sqlalchemy import Engine

from farm.errors import InvalidSpec
from farm.gang.admission import beat_age_s
from farm.messages.agents import Heartbeat
from farm.messages.commands import BeatConfirmed, Confirm
from farm.messages.envelope import unseal
from farm.messages.reports import ReportBatch
from farm.store.agents.heartbeats import BeatEffect, record_heartbeats
from farm.store.engine import writing
from farm.store.reports.reports import ElapsedTime, Stored, store_batches, time_by_wall

logger = logging.getLogger(__name__)

# Of one agent at a time: one that restarts has two, and two machines of one name as many each.
_MOST_LIVES = 8
# Of a batch of several reports. Agents send 256 KiB and 500 reports at most.
_MOST_BYTES = 2**20
_MOST_ROWS = 4_000
# Whose time under way is remembered.
_MOST_ATTEMPTS = 20_000

TakenReports = tuple[str, Confirm, Stored]
TakenBeat = tuple[str, BeatConfirmed, BeatEffect]


def read_batch(envelope: object) -> ReportBatch:
    """Return the reports in a message. Raises InvalidSpec: it is not a batch of this version."""
    batch = unseal(ReportBatch, envelope)
    assert isinstance(batch, ReportBatch)
    return batch


def row_count(batch: ReportBatch, byte_count: int) -> int:
    """Return about how many rows the store gets of a batch of so many bytes.

    Raises:
        InvalidSpec: it is much more than an agent sends at once. One report may be long: an agent
            whose report is refused here would send it for ever.
    """
    samples = (report.body.get("samples") for report in batch.reports)
    rows = len(batch.reports) + sum(len(some) for some in samples if isinstance(some, list))
    if len(batch.reports) > 1 and (byte_count > _MOST_BYTES or rows > _MOST_ROWS):
        size = f"{byte_count} bytes with {rows} rows"
        raise InvalidSpec("reports", size, f"at most {_MOST_BYTES} bytes and {_MOST_ROWS} rows")
    return rows


def read_beat(envelope: object) -> Heartbeat:
    """Return the heartbeat in a message. Raises InvalidSpec: it is none of this version."""
    beat = unseal(Heartbeat, envelope)
    assert isinstance(beat, Heartbeat)
    return beat


def take_reports(engine: Engine, envelope: object, *, now: dt.datetime) -> TakenReports:
    """Store one message, see `take_batches`. Raises InvalidSpec: nothing was stored."""
    [taken] = take_batches(engine, [read_batch(envelope)], now=now)
    return taken


def take_batches(
    engine: Engine,
    batches: Sequence[ReportBatch],
    *,
    now: dt.datetime,
    elapsed: ElapsedTime = time_by_wall,
) -> list[TakenReports]:
    """Store batches; return of each its sender, what to confirm to it now, and what it did."""
    with writing(engine) as session:
        results = store_batches(session, batches, now=now, elapsed=elapsed)
    taken = []
    for batch, stored in zip(batches, results, strict=True):
        for (token, rank), count in stored.late.items():
            ids = {"job_id": stored.job_ids.get(token), "attempt_id": token, "rank": rank}
            extra = {"agent_id": batch.agent_id, **ids, "late_count": count}
            logger.warning("reports came late", extra=extra)
        confirm = Confirm(generation=batch.generation, number=stored.confirmed)
        taken.append((batch.agent_id, confirm, stored))
    return taken


def take_heartbeat(
    engine: Engine, envelope: object, *, now: dt.datetime, lease: dt.timedelta
) -> TakenBeat:
    """Store one message, see `take_beats`. Raises InvalidSpec: nothing was stored."""
    [taken] = take_beats(engine, [read_beat(envelope)], now=now, lease=lease)
    return taken


def take_beats(
    engine: Engine, beats: Sequence[Heartbeat], *, now: dt.datetime, lease: dt.timedelta
) -> list[TakenBeat]:
    """Store heartbeats; return of each its sender, the confirmation, and what it did.

    Of several beats of one life of an agent only the last counts, and is answered; of an agent
    that has many lives at once, the first few do.

    Even a beat that proves nothing is confirmed: the confirmation is what lets the next one of
    that boot prove its freshness. But one that has lain in the broker for half a lease is not
    stored: after an outage so many wait that the newest would be as old before their turn came.
    """
    last: dict[tuple[str, str], Heartbeat] = {}
    lives: Counter[str] = Counter()
    for beat in beats:
        life = (beat.agent_id, beat.boot_id)
        if life not in last:
            lives[beat.agent_id] += 1
            if lives[beat.agent_id] > _MOST_LIVES:
                continue
        known = last.get(life)
        if known is None or beat.counter >= known.counter:
            last[life] = beat
    effects = {life: BeatEffect(is_stale=True) for life in last}
    young = {life: beat for life, beat in last.items() if not _is_old(beat, now=now, lease=lease)}
    if young:
        with writing(engine) as session:
            recorded = record_heartbeats(session, list(young.values()), now=now, lease=lease)
        effects.update(zip(young, recorded, strict=True))
    server_time_s = now.timestamp()
    return [
        (
            beat.agent_id,
            BeatConfirmed(boot_id=beat.boot_id, counter=beat.counter, server_time_s=server_time_s),
            effects[life],
        )
        for life, beat in last.items()
    ]


def _is_old(beat: Heartbeat, *, now: dt.datetime, lease: dt.timedelta) -> bool:
    age_s = beat_age_s(beat.echo, now_s=now.timestamp())
    return age_s is not None and age_s > lease.total_seconds() / 2


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
