"""Checks messages from agents, stores them, and returns the answers.

A refused message is logged and not passed on. Messages of an account that has used up its quota are
dropped. Messages are stored together in one transaction, since the commit is most of the cost of a
small message.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from sqlalchemy import Engine

from farm import __version__
from farm.broker.health_records import HealthReporter
from farm.broker.refusals import RefusalCounts
from farm.collector.quotas import Quotas
from farm.errors import InvalidSpec, Unreachable
from farm.gang.admission import beat_age_s
from farm.keys.keyring import Keyring
from farm.messages.agents import Heartbeat
from farm.messages.commands import BeatConfirmed, Command, Confirm
from farm.messages.envelope import WIRE_VERSION, UnknownVersion, unknown_version_in, unseal
from farm.messages.reports import ReportBatch
from farm.messages.signing import claimed_agent
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

SendAnswers = Callable[[Sequence[tuple[str, Command]]], None]
TakenReports = tuple[str, Confirm, Stored]
TakenBeat = tuple[str, BeatConfirmed, BeatEffect]
_Message = TypeVar("_Message")


class MessageFilter:
    """Accepts only signed messages if it has a `keyring`. Reports failures to `health`.

    `quotas`: by task, for accounts that the keyring verifies; without a keyring, for claimed names.
    """

    def __init__(
        self,
        *,
        keyring: Keyring | None,
        health: HealthReporter,
        answer: SendAnswers,
        quotas: Mapping[str, Quotas] | None = None,
    ) -> None:
        self._keyring = keyring
        self._quotas = quotas or {}
        self._health = health
        self._answer = answer
        self._refusals = RefusalCounts()

    def accept(
        self,
        task: str,
        envelopes: Sequence[object],
        read: Callable[[object], _Message],
        *,
        row_count: Callable[[_Message, int], int] | None = None,
    ) -> list[_Message]:
        """Return, in their order, the messages that `read` makes of the acceptable envelopes.

        `read` raises InvalidSpec for an invalid message; other messages are not affected.
        `row_count`: how many rows the store would get of a message, from it and its bytes; they are
        charged, too. It raises InvalidSpec as well.
        """
        messages: list[_Message] = []
        if not self._health.is_ours:
            return messages  # nothing is confirmed, so agents send it again
        quotas = self._quotas.get(task)
        is_any_dropped = False
        for envelope in envelopes:
            sender = unknown_version_in(envelope)
            if sender is not None:
                self._refuse(sender)
                continue
            account = claimed_agent(envelope)
            # With keys only what it has signed, or has added to its own queue, was charged to it,
            # so that nobody else who claims its name can have used this up.
            empty = quotas.exhausted(account) if quotas is not None and account else None
            if quotas is not None and account and empty is not None:
                self._refusals.add(account, f"beyond {quotas.limit(empty)}")
                is_any_dropped = True
                continue
            try:
                opened = envelope
                if self._keyring is not None:
                    opened = self._keyring.opened(task, envelope)
                byte_count = _byte_count(opened)
                if quotas is not None and account:
                    quotas.charge(account, messages=1, bytes=byte_count)
                message = read(opened)
                if row_count is not None:
                    rows = row_count(message, byte_count)
                    if quotas is not None and account:
                        quotas.charge(account, rows=rows)
                messages.append(message)
            except InvalidSpec as error:
                self._refusals.add(account or "unnamed", str(error))
            except Unreachable as error:
                # Keys are in the store, so the others could not be stored either.
                logger.warning("%d messages not read: %s", len(envelopes), error)
                self._health.failed(str(error))
                return []
            except Exception as error:
                logger.exception("message not read", extra={"agent_id": account})
                self._health.failed(repr(error))
        if quotas is not None and is_any_dropped:
            self._health.hold_back(task, quotas.dropped())
        return messages

    def _refuse(self, sender: UnknownVersion) -> None:
        """Log that an agent has another version, and answer so that the agent logs it, too.

        The agent cannot parse our answer, but every version first checks the version number, and
        logs the one that it expected.
        """
        if self._health.note_unknown_version(sender):
            logger.warning(
                "agent speaks wire version %d, and this server %d: install this server's benchfarm "
                "%s there; nothing of it is taken until then",
                sender.version,
                WIRE_VERSION,
                __version__,
                extra={"agent_id": sender.agent_id},
            )
            nobody = BeatConfirmed(boot_id="", counter=0, server_time_s=0.0)
            self._answer([(sender.agent_id, nobody)])


def _byte_count(envelope: object) -> int:
    """Return the length of a message in the store's JSON form, however its sender wrote it.

    Raises:
        InvalidSpec: it is nested too deeply to be written.
    """
    message = envelope.get("message") if isinstance(envelope, dict) else envelope
    try:
        return len(json.dumps(message))
    except RecursionError:
        raise InvalidSpec("envelope", "a message", "a less deeply nested one") from None


def read_batch(envelope: object) -> ReportBatch:
    """Return the reports in a message. Raises InvalidSpec: it is not a batch of this version."""
    batch = unseal(ReportBatch, envelope)
    assert isinstance(batch, ReportBatch)
    return batch


def row_count(batch: ReportBatch, byte_count: int) -> int:
    """Return about how many rows a batch of so many bytes adds to the store.

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


def take_batches(
    engine: Engine,
    batches: Sequence[ReportBatch],
    *,
    now: dt.datetime,
    elapsed: ElapsedTime = time_by_wall,
) -> list[TakenReports]:
    """Store batches; return for each its sender, the confirmation, and its effect."""
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


def take_beats(
    engine: Engine, beats: Sequence[Heartbeat], *, now: dt.datetime, lease: dt.timedelta
) -> list[TakenBeat]:
    """Store heartbeats; return for each its sender, the confirmation, and its effect.

    Of several beats of one agent process only the last counts and is answered. If an agent seems to
    have many processes at once, the first few count.

    Even a beat that proves nothing is confirmed, since the confirmation lets the next one prove its
    freshness. A beat that waited in the broker for half a lease is not stored: after an outage
    there are so many that the newest would become as old before its turn.
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
    """Remembers when each attempt was last seen and how long it had run by then.

    After the wall clock was set back, an attempt seems to have run for less time than it has, and
    the samples of an honest rank would be refused. So the time by this process's monotonic clock is
    used if it is more.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: OrderedDict[int, tuple[float, float]] = OrderedDict()

    def __call__(self, token: int, by_wall_s: float) -> float:
        """Return the time since an attempt was leased; `by_wall_s`: that time by the wall clock."""
        now_s, elapsed_s = self._clock(), by_wall_s
        if token in self._seen:
            before_s, at_s = self._seen.pop(token)
            elapsed_s = max(elapsed_s, before_s + (now_s - at_s))
        self._seen[token] = elapsed_s, now_s
        if len(self._seen) > _MOST_ATTEMPTS:
            self._seen.popitem(last=False)
        return elapsed_s
