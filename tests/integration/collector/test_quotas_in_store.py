"""What an account can have stored in ten minutes, if it sends as much as its quotas take."""

from __future__ import annotations

import base64
import dataclasses
import json
import random
from collections.abc import Callable

import pytest
import sqlalchemy as sa

from farm.broker.celery_app import HEARTBEAT_TASK, REPORTS_TASK
from farm.broker.health_records import COLLECTOR, HealthReporter
from farm.collector.ingest import (
    MessageFilter,
    read_batch,
    read_beat,
    row_count,
    take_batches,
    take_beats,
)
from farm.collector.quotas import HEARTBEAT_QUOTAS, REPORT_QUOTAS, Quota, make_quotas
from farm.gang.lifecycle import AttemptState
from farm.keys.keyring import Keyring
from farm.messages.agent_keys import derive_key
from farm.messages.agents import BeatEcho
from farm.messages.envelope import WIRE_VERSION
from farm.messages.rank_limits import MOST_BODY_BYTES, SLACK_S
from farm.messages.reports import LONGEST_LOG_CHARACTERS, RankEnded
from farm.messages.signing import MessageDirection, sign
from farm.store.agents.agent_keys import add_agent_key
from farm.store.engine import reading, writing
from farm.store.health import database_bytes
from farm.values.codec import to_json
from tests.factories import (
    NOW,
    add_agent,
    add_attempt,
    add_job,
    agent_facts,
    heartbeat,
    job_spec,
    seconds,
)
from tests.stored.two_agents import RESULT

FARM_KEY = bytes(32)
TEN_MINUTES_S = 600
STEP_S = 60
MOST_TICKS = int(SLACK_S)  # of an attempt that is new
MOST_STORED_BYTES = 50e6
Body = dict[str, object]


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Collector:
    """The filter and the store behind it. `takes` says whether a message was accepted."""

    def __init__(self, engine: sa.Engine, *, is_signed: bool = True) -> None:
        self.clock = Clock()
        self._engine = engine
        self._key = None
        if is_signed:
            with writing(engine) as session:
                number = add_agent_key(session, "a", now=NOW).number
            self._key = derive_key(FARM_KEY, "a", number)
        self._filter = MessageFilter(
            keyring=Keyring(engine, FARM_KEY) if is_signed else None,
            health=HealthReporter(COLLECTOR, "redis://127.0.0.1:1/0"),
            answer=lambda answers: None,
            quotas=make_quotas(are_names_proven=is_signed, clock=self.clock),
        )

    def takes(self, message: Body, *, task: str = REPORTS_TASK) -> bool:
        now = NOW + seconds(self.clock.now_s)
        envelope: Body = {"version": WIRE_VERSION, "message": message}
        if self._key is not None:
            keys, to_server = [self._key], MessageDirection.TO_SERVER
            envelope = sign(envelope, keys, agent_id="a", direction=to_server, kind=task)
        if task == HEARTBEAT_TASK:
            beats = self._filter.accept(task, [envelope], read_beat)
            if beats:
                [(_, _, effect)] = take_beats(self._engine, beats, now=now, lease=seconds(20))
                assert not effect.is_stale
            return bool(beats)
        batches = self._filter.accept(task, [envelope], read_batch, row_count=row_count)
        if batches:
            take_batches(self._engine, batches, now=now)
        return bool(batches)


class Left:
    """What is left of a quota, so that no message of the attacker's is dropped."""

    def __init__(self, quota: Quota) -> None:
        self._quota = quota
        self.used = 0.0

    def at(self, now_s: float) -> float:
        return self._quota.burst + self._quota.per_minute * now_s / 60 - self.used


class Attacker:
    """Sends, as agent a, what takes the most room in the store, up to the last byte.

    `tokens`: of attempts that it serves. It has more at once than the scheduler would give it.
    """

    def __init__(self, collector: Collector, tokens: list[int]) -> None:
        self._collector = collector
        self._tokens = tokens
        self._random = random.Random(7)
        self._number = self._tick = self._part = 0
        self._beat = 1  # the last that was heard
        self._bytes, self._rows = Left(REPORT_QUOTAS["bytes"]), Left(REPORT_QUOTAS["rows"])
        self._beat_bytes = Left(HEARTBEAT_QUOTAS["bytes"])

    @property
    def now_s(self) -> float:
        return self._collector.clock.now_s

    def noise(self, length: int) -> str:
        """Return text that no database compresses."""
        return base64.b64encode(self._random.randbytes(length)).decode()[:length]

    def sends(self, kind: str, bodies: list[Body], *, token: int, rows: int = 1) -> bool:
        """Send a batch of reports, if there is room for it in the quotas."""
        fields = {"token": token, "rank": 0, "kind": kind}
        first = self._number + 1
        reports = [{"number": n, **fields, "body": body} for n, body in enumerate(bodies, first)]
        message: Body = {"agent_id": "a", "generation": "g", "reports": reports}
        byte_count = len(json.dumps(message))
        if self._bytes.at(self.now_s) <= byte_count:
            return False
        assert self._rows.at(self.now_s) > rows
        assert self._collector.takes(message)
        self._number += len(reports)
        self._bytes.used += byte_count
        self._rows.used += rows
        return True

    def late_reports(self) -> None:
        """Send some that are kept with their bodies, and more than are kept."""
        bodies: list[Body] = [{"text": self.noise(4_000)} for _ in range(100)]
        assert self.sends("log", bodies, token=10**9, rows=len(bodies))

    def samples(self, size: int, *, extra: Callable[[], Body]) -> bool:
        """Send samples of ticks that no attempt has had yet."""
        token = self._tokens[self._tick // MOST_TICKS]
        ticks = range(self._tick % MOST_TICKS, self._tick % MOST_TICKS + size)
        self._tick += size
        samples = [{"tick": tick, **extra()} for tick in ticks]
        return self.sends("samples", [{"samples": samples}], token=token, rows=1 + size)

    def small_rows(self) -> None:
        """Send the rows that take the most room for their bytes, and leave a few for the rest."""
        while self._rows.at(self.now_s) > 6_000:
            assert self.samples(900, extra=dict)

    def half_pages(self) -> bool:
        """Send samples of which only one fits into a page of SQLite."""
        return self.samples(100, extra=lambda: {"extra": {self.noise(64): 1 for _ in range(29)}})

    def logs(self) -> bool:
        """Send a part of a log, as long as there may be one."""
        length = 36_000
        parts_of_one = LONGEST_LOG_CHARACTERS // length
        token = self._tokens[self._part // parts_of_one]
        first = self._part % parts_of_one * length
        self._part += 1
        body: Body = {"first_character": first, "text": self.noise(length)}
        return self.sends("log", [body], token=token)

    def beats(self) -> None:
        """Change all that an agent says of itself with each heartbeat."""
        while True:
            self._beat += 1
            labels = {self.noise(60): self.noise(300) for _ in range(100)}
            beat = heartbeat(
                agent_id="a",
                counter=self._beat,
                facts=agent_facts(labels=labels),
                echo=BeatEcho(server_time_s=NOW.timestamp() + self.now_s, elapsed_s=0.0),
            )
            message = to_json(beat)
            assert isinstance(message, dict)
            byte_count = len(json.dumps(message))
            if self._beat_bytes.at(self.now_s) <= byte_count:
                return
            self._beat_bytes.used += byte_count
            assert self._collector.takes(message, task=HEARTBEAT_TASK)

    def longest_report(self) -> None:
        """Send the longest there may be: who has not used up all of a quota is heard."""
        empty = ended("")
        text = self.noise(MOST_BODY_BYTES - len(json.dumps(empty)))
        assert 0 < self._bytes.at(self.now_s) < len(text)
        self._number += 1
        report = {"number": self._number, "token": self._tokens[0], "rank": 0, "kind": "ended"}
        reports = [{**report, "body": ended(text)}]
        assert self._collector.takes({"agent_id": "a", "generation": "g", "reports": reports})

    def is_heard(self, body: Body | None = None) -> bool:
        """Whether a report is let in, whatever was sent before."""
        self._number += 1
        report = {"number": self._number, "token": 1, "rank": 0, "kind": "x", "body": body or {}}
        message: Body = {"agent_id": "a", "generation": "g", "reports": [report]}
        return self._collector.takes(message)


def ended(text: str) -> Body:
    result = dataclasses.replace(RESULT, details={"text": text})
    body = to_json(RankEnded(result=result, failure=None, timed_begun_s=1.0, log_tail=""))
    assert isinstance(body, dict)
    return body


def stored_bytes(engine: sa.Engine) -> int:
    with reading(engine) as session:
        byte_count = database_bytes(session)
    assert byte_count is not None
    return byte_count


@pytest.mark.parametrize(
    ("database_kind", "kind"),
    [
        ("sqlite", "half_pages"),
        pytest.param("postgresql", "logs", marks=pytest.mark.slow),  # ten seconds
    ],
)
def test_ten_minutes_of_the_worst_that_the_quotas_take_are_less_than_fifty_megabytes(
    engine: sa.Engine, kind: str
) -> None:
    """Of the kinds of messages that have much text, the one that takes the most room there."""
    with writing(engine) as session:
        add_agent(session, "a")
        spec = job_spec(steps=None, epochs=1_000_000)
        tokens = [
            add_attempt(session, add_job(session, spec), ["a"], state=AttemptState.RUNNING)
            for _ in range(110)
        ]
    collector = Collector(engine)
    attacker = Attacker(collector, tokens)
    before = stored_bytes(engine)
    attacker.late_reports()
    for now_s in range(0, TEN_MINUTES_S + 1, STEP_S):
        collector.clock.now_s = now_s
        attacker.small_rows()
        while getattr(attacker, kind)():
            pass
        attacker.beats()
    attacker.longest_report()
    assert not attacker.is_heard(), "nothing is left"
    grown = stored_bytes(engine) - before
    text = REPORT_QUOTAS["bytes"].burst + 10 * REPORT_QUOTAS["bytes"].per_minute
    assert text < grown < MOST_STORED_BYTES


@pytest.mark.parametrize("database_kind", ["sqlite"])
def test_a_farm_without_keys_takes_as_much_of_an_account(engine: sa.Engine) -> None:
    with writing(engine) as session:
        add_agent(session, "a")

    def taken(collector: Collector) -> int:
        attacker = Attacker(collector, [])
        body: Body = {"text": attacker.noise(400_000)}
        count = 0
        while attacker.is_heard(body):
            count += 1
        return count

    signed, unsigned = (taken(Collector(engine, is_signed=s)) for s in (True, False))
    assert signed == unsigned
    assert signed * 400_000 < REPORT_QUOTAS["bytes"].burst + 500_000
