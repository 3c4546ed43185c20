"""Health records of the server processes, stored in Redis.

A record is a key with a short time to live, which its process renews. The record of a killed or
frozen process expires; no clocks are compared. While the broker is away, nothing is known.
"""

from __future__ import annotations

import logging
import math
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from farm import __version__
from farm.broker.celery_app import open_client
from farm.broker.errors import broker_errors, translate_errors
from farm.errors import FarmError, InvalidSpec, OtherFarm, Unreachable
from farm.messages.envelope import WIRE_VERSION, UnknownVersion
from farm.values.codec import canonical_json, from_text
from farm.values.ranges import LongText, ShortText

logger = logging.getLogger(__name__)

SCHEDULER = "scheduler"
COLLECTOR = "collector"
EVERY_S = 5.0
KEPT_S = 15.0
_PREFIX = "farm.alive."
_TIMEOUT_S = 2.0
_REFUSAL_LOGGED_EVERY_S = 60.0
# An agent of another version is reported for this long after its last message.
_UNKNOWN_VERSION_KEPT_S = 120.0
_UNKNOWN_VERSION_LOGGED_EVERY_S = 60.0
_MOST_UNKNOWN_VERSIONS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthRecord:
    """The state of a process, `age_s` ago.

    `worked_s`: how long before that it last did its work without an error; None: never yet.
    `trouble`: what went wrong since. `clock_offset_s`: its clock minus the broker's.
    `clock_step_s`: by how much its clock was set last, negative for back. `strangers`: agents that
    speak another wire version, and which. `held_back`: agents that send more than their quota, and
    how many of their messages were dropped.
    """

    process: ShortText
    host: ShortText
    pid: int
    benchfarm_version: ShortText
    wire_version: int
    up_s: float
    worked_s: float | None
    trouble: LongText | None = None
    clock_offset_s: float | None = None
    clock_step_s: float | None = None
    clock_step_ago_s: float | None = None
    strangers: dict[str, int] = field(default_factory=dict)
    held_back: dict[str, int] = field(default_factory=dict)
    age_s: float = 0.0

    @property
    def name(self) -> str:
        """Which of several it is."""
        return f"{self.process} on {self.host} (process {self.pid})"


@dataclass(frozen=True, slots=True)
class _UnknownVersion:
    version: int
    heard_s: float
    logged_s: float


class HealthReporter:
    """Renews the health record of this process in a thread, since its own work may take long."""

    def __init__(
        self,
        process: str,
        broker_url: str,
        *,
        shown: Callable[[bool], None] = lambda is_seen: None,
        claim: Callable[[Any], None] | None = None,
        is_ours: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`shown`: is called after each try, with whether the broker took the record.

        `claim`: is called with a client before each record, and raises OtherFarm where the broker
        serves another farm. `is_ours` is False then, and True when it has returned; before its
        first call it is as given. `process_count`: how many processes of this sort were alive, this
        one included, when the record was last written.
        """
        self._process = process
        self._shown = shown
        self._claim = claim
        self._refusal_logged_s = -math.inf
        self.is_ours = is_ours
        self.process_count = 1
        self._url = broker_url
        self._clock = clock
        self._begun_s = clock()
        self._worked_s: float | None = None
        self._trouble: str | None = None
        self._step: tuple[float, float] | None = None  # by how much its clock was set, and when
        self._unknown_versions: dict[str, _UnknownVersion] = {}
        self._held_back: dict[str, tuple[float, dict[str, int]]] = {}
        self._lock = threading.Lock()
        self._is_away = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="health-record", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Delete the record, so that nothing waits for a process that has ended."""
        self._stopping.set()
        self._thread.join(timeout=2 * _TIMEOUT_S)

    def worked(self) -> None:
        """Note that the process has done its work just now."""
        self._worked_s, self._trouble = self._clock(), None

    def failed(self, reason: str) -> None:
        """Note that it could not, and why."""
        self._trouble = reason[:300]

    def clock_stepped(self, step_s: float) -> None:
        """Note that somebody has set this machine's clock."""
        self._step = step_s, self._clock()

    def note_unknown_version(self, sender: UnknownVersion) -> bool:
        """Note a sender of another version; True if it was not logged for a minute."""
        now = self._clock()
        with self._lock:
            self._forget_unknown_versions(now)
            known = self._unknown_versions.get(sender.agent_id)
            if known is None and len(self._unknown_versions) >= _MOST_UNKNOWN_VERSIONS:
                return False
            is_due = known is None or now - known.logged_s >= _UNKNOWN_VERSION_LOGGED_EVERY_S
            logged_s = now if known is None or is_due else known.logged_s
            self._unknown_versions[sender.agent_id] = _UnknownVersion(sender.version, now, logged_s)
        return is_due

    def hold_back(self, queue: str, dropped: Mapping[str, int]) -> None:
        """Record how many messages of each agent were dropped lately, in one queue."""
        most = sorted(dropped.items(), key=lambda item: -item[1])[:_MOST_UNKNOWN_VERSIONS]
        with self._lock:
            self._held_back[queue] = self._clock(), dict(most)

    def _forget_unknown_versions(self, now: float) -> None:
        since = now - _UNKNOWN_VERSION_KEPT_S
        self._unknown_versions = {
            n: met for n, met in self._unknown_versions.items() if met.heard_s >= since
        }

    def _run(self) -> None:
        while True:
            is_seen = False
            try:
                with translate_errors(self._url):
                    self.write()
                is_seen = True
            except Unreachable as error:
                # The first to notice: clients that wait for the broker try for half a minute.
                if not self._is_away:
                    logger.warning("%s; the %s goes on trying", error, self._process)
                self._is_away = True
            except Exception:
                logger.exception("health record was not written")
            if is_seen and self._is_away:
                logger.info("the broker answers again")
                self._is_away = False
            self._shown(is_seen)
            if self._stopping.wait(EVERY_S):
                break
        try:
            with open_client(self._url, timeout_s=_TIMEOUT_S) as client:
                client.delete(self._key)
        except broker_errors():
            logger.debug("health record was left to expire")

    def write(self) -> None:
        """Write the record now.

        Raises what clients of Redis raise where the broker does not answer.
        """
        from redis.exceptions import ResponseError

        with open_client(self._url, timeout_s=_TIMEOUT_S) as client:
            if self._claim is not None and not self._renew(client, self._claim):
                client.delete(self._key)  # a record says that this farm uses the broker
                return
            offset_s = clock_offset_s(client)
            record = canonical_json(self._record(offset_s))
            client.set(self._key, record, px=int(KEPT_S * 1000))
            with suppress(ResponseError):  # a hosted Redis may refuse it; then as before
                others = client.scan_iter(match=f"{_PREFIX}{self._process}.*", count=1000)
                self.process_count = max(1, len(set(others)))

    def _renew(self, client: Any, claim: Callable[[Any], None]) -> bool:
        try:
            claim(client)
        except OtherFarm as error:
            self.is_ours = False
            now = self._clock()
            if now - self._refusal_logged_s >= _REFUSAL_LOGGED_EVERY_S:
                logger.warning("the %s does nothing: %s", self._process, error)
                self._refusal_logged_s = now
        except Unreachable as error:
            # The store is away, so that nothing has changed there.
            logger.debug("whose the broker is was not looked up: %s", error)
        else:
            if self._refusal_logged_s > -math.inf and not self.is_ours:
                logger.info("the broker serves this farm; the %s goes on", self._process)
            self.is_ours = True
        return self.is_ours

    def _record(self, offset_s: float) -> HealthRecord:
        now = self._clock()
        with self._lock:
            self._forget_unknown_versions(now)
            strangers = {name: met.version for name, met in self._unknown_versions.items()}
            held_back: Counter[str] = Counter()
            for at_s, counts in self._held_back.values():
                if now - at_s < _UNKNOWN_VERSION_KEPT_S:
                    held_back.update(counts)
        return HealthRecord(
            process=self._process,
            host=socket.gethostname(),
            pid=os.getpid(),
            benchfarm_version=__version__,
            wire_version=WIRE_VERSION,
            up_s=now - self._begun_s,
            worked_s=None if self._worked_s is None else now - self._worked_s,
            trouble=self._trouble,
            clock_offset_s=offset_s,
            clock_step_s=None if self._step is None else self._step[0],
            clock_step_ago_s=None if self._step is None else now - self._step[1],
            strangers=strangers,
            held_back=dict(held_back),
        )

    @property
    def _key(self) -> str:
        return _key_of(self._process, socket.gethostname(), os.getpid())


def read_health_records(client: Any) -> list[HealthRecord]:
    """Return the records, by process, host and number; invalid ones are skipped.

    `client`: of `farm.broker.celery_app.open_client`.
    """
    keys = sorted(client.scan_iter(match=f"{_PREFIX}*", count=1000))
    found = [_read_record(client, key) for key in keys]
    return [record for record in found if record is not None]


def find_idle_reason(broker_url: str) -> str | None:
    """Return why jobs that could start do not; None if a scheduler works.

    The reason names no host, so that everybody may read it; `farm doctor` says more.
    """
    try:
        with translate_errors(broker_url), open_client(broker_url, timeout_s=_TIMEOUT_S) as client:
            records = [
                record for record in read_health_records(client) if record.process == SCHEDULER
            ]
            refusal = None if records else record_refusal(client)
    except FarmError:
        reason = "the broker does not answer"
    else:
        if refusal is not None:
            reason = "the broker takes no messages"
        elif not records:
            reason = "no scheduler runs"
        elif all(record.trouble is not None for record in records):
            reason = "the scheduler cannot do its work"
        else:
            return None
    return f"{reason}: `farm doctor` says more"


def record_refusal(client: Any) -> str | None:
    """Return why the broker would refuse a health record, such as being full; else None.

    Nothing is written.
    """
    import redis

    try:
        client.set(f"{_PREFIX}nobody", "", xx=True, px=1)
    except redis.exceptions.NoPermissionError:
        return None  # of this account alone
    except redis.ResponseError as error:
        return str(error)
    return None


def _read_record(client: Any, key: bytes) -> HealthRecord | None:
    """Read a key that anything may have written; None if it is no record of ours.

    A record expires and lies where its process would have put it, so each process has one.
    """
    if client.type(key) != b"string":
        return None
    text, left_ms = client.get(key), client.pttl(key)
    if text is None or not 0 < left_ms <= KEPT_S * 1000:
        return None
    try:
        record = from_text(HealthRecord, text)
    except InvalidSpec:
        return None
    is_ours = record.process in (SCHEDULER, COLLECTOR)
    if not is_ours or _key_of(record.process, record.host, record.pid).encode() != key:
        return None
    return replace(record, age_s=max(0.0, KEPT_S - left_ms / 1000))


def _key_of(process: str, host: str, pid: int) -> str:
    return f"{_PREFIX}{process}.{host}.{pid}"


def clock_offset_s(client: Any) -> float:
    """Return this machine's clock minus the broker's, half of the answer's way taken off."""
    before_s = time.time()
    seconds, microseconds = client.time()
    return (before_s + time.time()) / 2 - float(seconds + microseconds / 1e6)
