"""A server that decides nothing: it sends what a test says, collects reports and confirms them."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any, TypeVar

from kombu.entity import Queue
from kombu.messaging import Consumer

from farm.broker.celery_app import (
    HEARTBEAT_TASK,
    HEARTBEATS_QUEUE,
    REPORTS_QUEUE,
    REPORTS_TASK,
    make_app,
)
from farm.broker.sending import Sender
from farm.broker.task_message import read_carried
from farm.configuration.spec import JobSpec
from farm.errors import Unreachable
from farm.gang.barriers import cluster_spec
from farm.messages.agents import Heartbeat
from farm.messages.commands import (
    BeatConfirmed,
    Command,
    Confirm,
    Go,
    Peers,
    RankAddress,
    Shape,
    StartRank,
)
from farm.messages.envelope import unseal
from farm.messages.reports import Prepared, Report, ReportBatch

T = TypeVar("T")


class FakeServer:
    """Consumes in a thread of its own between `start` and `stop`."""

    def __init__(self, broker_url: str) -> None:
        self._app = make_app(broker_url)
        self.sender = Sender(broker_url)
        self.confirms_beats = True
        self.confirms_reports = True
        self.beats: dict[str, list[Heartbeat]] = defaultdict(list)
        self.batches_count = 0
        self._reports: dict[tuple[str, str], dict[int, Report]] = defaultdict(dict)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._consume, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(timeout=15)
        self.sender.close()
        self._app.close()

    def send(self, agent_id: str, command: Command) -> None:
        """Send once more for as long as the broker is away."""
        deadline = time.monotonic() + 20
        while True:
            try:
                return self.sender.send([(agent_id, command)])
            except Unreachable:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def generations(self, agent_id: str) -> list[str]:
        return [generation for agent, generation in self._reports if agent == agent_id]

    def reports(self, agent_id: str, token: int | None = None) -> list[Report]:
        """Return the agent's reports in order, up to the first that is missing."""
        found: list[Report] = []
        for generation in self.generations(agent_id):
            stored = self._reports[agent_id, generation]
            found += [stored[number] for number in range(1, self._contiguous(stored) + 1)]
        return [report for report in found if token is None or report.token == token]

    def bodies(self, agent_id: str, kind: type[T], token: int | None = None) -> list[T]:
        decoded = (report.decoded() for report in self.reports(agent_id, token))
        return [body for body in decoded if isinstance(body, kind)]

    def _consume(self) -> None:
        while not self._stopping.is_set():
            connection = self._app.connection_for_read()
            try:
                self._drain(connection)
            except connection.connection_errors + connection.channel_errors + (Unreachable,):
                time.sleep(0.1)
            finally:
                connection.release()

    def _drain(self, connection: Any) -> None:
        names = (REPORTS_QUEUE, HEARTBEATS_QUEUE)
        queues = [Queue(name, routing_key=name) for name in names]  # type: ignore[no-untyped-call] # kombu
        consumer = Consumer(  # type: ignore[no-untyped-call] # kombu has no types
            connection.channel(), queues, callbacks=[self._take], accept=["json"]
        )
        with consumer:
            while not self._stopping.is_set():
                try:
                    connection.drain_events(timeout=0.1)
                except TimeoutError:
                    continue

    def _take(self, body: Any, message: Any) -> None:
        envelope = read_carried(body[0][0])
        if message.headers["task"] == HEARTBEAT_TASK:
            self._take_beat(unseal(Heartbeat, envelope))  # type: ignore[arg-type] # by its kind
        elif message.headers["task"] == REPORTS_TASK:
            self._take_batch(unseal(ReportBatch, envelope))  # type: ignore[arg-type] # by its kind
        message.ack()

    def _take_beat(self, beat: Heartbeat) -> None:
        self.beats[beat.agent_id].append(beat)
        if self.confirms_beats:
            confirmation = BeatConfirmed(
                boot_id=beat.boot_id, counter=beat.counter, server_time_s=time.time()
            )
            self.sender.send([(beat.agent_id, confirmation)])

    def _take_batch(self, batch: ReportBatch) -> None:
        self.batches_count += 1
        stored = self._reports[batch.agent_id, batch.generation]
        for report in batch.reports:
            # The same number must always be the same report.
            assert stored.setdefault(report.number, report) == report
        if self.confirms_reports:
            number = self._contiguous(stored)
            confirm = Confirm(generation=batch.generation, number=number)
            self.sender.send([(batch.agent_id, confirm)])

    @staticmethod
    def _contiguous(stored: dict[int, Report]) -> int:
        number = 0
        while number + 1 in stored:
            number += 1
        return number


class FakeGang:
    """Leads the agents of one attempt, in order of rank, through the rendezvous."""

    def __init__(
        self, server: FakeServer, token: int, *, agent_ids: tuple[str, ...], spec: JobSpec
    ) -> None:
        self.server = server
        self.token = token
        self.agent_ids = agent_ids
        self.spec = spec
        self.copies = 1  # how often each command is sent

    def start(self, *, prepare_timeout_s: float = 30.0) -> None:
        for rank in range(len(self.agent_ids)):
            self._send(
                rank,
                StartRank(
                    token=self.token,
                    rank=rank,
                    agent_count=len(self.agent_ids),
                    roles=("worker",),
                    spec=self.spec,
                    prepare_timeout_s=prepare_timeout_s,
                ),
            )

    def addresses(self) -> tuple[RankAddress, ...]:
        prepared = self._all(Prepared)
        return tuple(one.address for one in prepared)

    def lead_to_go(self, *, start_timeout_s: float = 20.0) -> None:
        """Pass all four barriers; training begins."""
        from farm.messages.reports import PeersMeasured, Shaped

        self.start()
        addresses = self.addresses()
        self._send_all(Peers(token=self.token, addresses=addresses, timeout_s=10))
        self._all(PeersMeasured)
        self._send_all(Shape(token=self.token, profile=self.spec.network, timeout_s=10))
        self._all(Shaped)
        cluster = cluster_spec(addresses, [("worker",)] * len(addresses))
        self._send_all(Go(token=self.token, cluster=cluster, timeout_s=start_timeout_s))

    def wait_for(self, kind: type[T], *, timeout_s: float = 240.0) -> list[T]:
        """Wait until every rank has reported a `kind`; return the first of each."""
        return self._all(kind, timeout_s=timeout_s)

    def _all(self, kind: type[T], *, timeout_s: float = 240.0) -> list[T]:
        def collect() -> list[T] | None:
            found = [self.server.bodies(agent, kind, self.token) for agent in self.agent_ids]
            return [bodies[0] for bodies in found] if all(found) else None

        return wait_until(collect, f"a {kind.__name__} of every rank", timeout_s=timeout_s)

    def _send_all(self, command: Command) -> None:
        for rank in range(len(self.agent_ids)):
            self._send(rank, command)

    def _send(self, rank: int, command: Command) -> None:
        for _ in range(self.copies):
            self.server.send(self.agent_ids[rank], command)


def wait_until(condition: Callable[[], T | None], what: str, *, timeout_s: float = 240.0) -> T:
    """Return the condition's first value that is true, or fail saying what did not come."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"within {timeout_s:g} s there was not: {what}")
        time.sleep(0.02)
