"""A simulated agent: the code of the real one, without machine and trainer.

Pure but for the messages it makes; instants are readings of one monotonic clock.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field

from benchmarks.fleet.machine import TimedResources
from benchmarks.fleet.spool import MemorySpool
from farm.messages.agents import AgentFacts, AgentState, Heartbeat
from farm.messages.commands import (
    COMMANDS,
    BeatConfirmed,
    Confirm,
    Go,
    Peers,
    Shape,
    StartRank,
    StopAttempt,
)
from farm.messages.envelope import seal, unseal
from farm.messages.reports import RankEnded, ReportBody, Samples
from farm.messages.trainer_lines import Failure, FailureKind
from worker_agent.rank.rank import RunningRank
from worker_agent.spool.delivery import Delivery
from worker_agent.supervisor.fencing import Admission, admit
from worker_agent.supervisor.heartbeat import HeartbeatSchedule

_TICK_S = 1.0  # how often a rank's limits are looked at
_PROGRESS_TIMEOUT_S = 120.0


@dataclass(slots=True)
class Noted:
    """What was seen since it was last asked for.

    `starts`: token, rank and Unix time of the receipt of each new `start_rank`. `lags_s`: from the
    instant of a report's oldest sample to the receipt of its confirmation.
    """

    starts: list[tuple[int, int, float]] = field(default_factory=list)
    lags_s: list[float] = field(default_factory=list)
    beat_ways_s: list[float] = field(default_factory=list)
    beat_count: int = 0
    batch_count: int = 0
    repeat_count: int = 0
    report_count: int = 0
    refused_count: int = 0
    lost_count: int = 0


class SimulatedAgent:
    """`facts`: what it says of itself; its heartbeats begin at a random point of their interval."""

    def __init__(
        self,
        agent_id: str,
        *,
        facts: AgentFacts,
        noted: Noted,
        rng: random.Random,
        now: float,
        heartbeat_s: float = 5.0,
        lease_s: float = 20.0,
    ) -> None:
        self.agent_id = agent_id
        self.spool = MemorySpool()
        self._facts = facts
        self._noted = noted
        self._rng = rng
        self._lease_s = lease_s
        first_s = now + rng.uniform(0.0, heartbeat_s)
        self._heartbeat = HeartbeatSchedule(
            boot_id=self.spool.generation, interval_s=heartbeat_s, lease_s=lease_s, now=first_s
        )
        self._delivery = Delivery(self.spool, agent_id=agent_id)
        self._highest_token = 0
        self._seen: frozenset[int] = frozenset()
        self._rank: RunningRank | None = None
        self._resources: TimedResources | None = None
        self._now = now
        self._ticked_s = 0.0
        self._sent_numbers = 0

    def obey(self, name: str, envelope: object, *, now: float) -> None:
        """Take a command, as the supervisor does."""
        command = unseal(COMMANDS[name], envelope)
        if isinstance(command, BeatConfirmed):
            was_silent = self._heartbeat.is_server_silent(now=now)
            self._noted.beat_ways_s.append(self._heartbeat.unconfirmed_s(now=now))
            if self._heartbeat.confirm(command, now=now) and was_silent:
                self._delivery.start_over()
        elif isinstance(command, Confirm):
            born_s = self.spool.take_confirmed(command)
            self._noted.lags_s += [now - s for s in born_s]
            self._delivery.confirm(command, now=now)
        elif isinstance(command, StartRank):
            self._start_rank(command, now=now)
        elif isinstance(command, StopAttempt):
            self._highest_token = max(self._highest_token, command.token)
            if self._rank is not None and self._rank.token <= command.token:
                self._rank.stop(command.reason)
            self._heartbeat.send_soon()
        elif (
            self._rank is not None
            and isinstance(command, Peers | Shape | Go)
            and self._rank.token == command.token
        ):
            self._lead_on(self._rank, command, now=now)

    def act(self, *, now: float) -> list[tuple[str, dict[str, object]]]:
        """Do what is due; return what is to be published, each with its queue's name."""
        self._live(now=now)
        outgoing: list[tuple[str, dict[str, object]]] = []
        if self._heartbeat.due_in_s(now=now) == 0:
            self._noted.beat_count += 1
            outgoing.append(("heartbeats", seal(self._beat(now))))
        silent = self._heartbeat.is_server_silent(now=now)
        batch = self._delivery.next_batch(now=now, server_is_silent=silent)
        if batch is not None:
            self._noted.batch_count += 1
            self._noted.report_count += len(batch.reports)
            self._noted.repeat_count += batch.reports[0].number <= self._sent_numbers
            self._sent_numbers = max(self._sent_numbers, batch.reports[-1].number)
            outgoing.append(("reports", seal(batch)))
        return outgoing

    def due_s(self, *, now: float) -> float:
        """Return when `act` has something to do, if no command comes before."""
        silent = self._heartbeat.is_server_silent(now=now)
        due_s = now + min(
            self._heartbeat.due_in_s(now=now),
            self._delivery.due_in_s(now=now, server_is_silent=silent),
        )
        if self._resources is not None:
            due_s = min(due_s, self._resources.due_s, self._ticked_s + _TICK_S)
        return due_s

    def _start_rank(self, command: StartRank, *, now: float) -> None:
        admission = admit(
            command.token,
            highest_token=self._highest_token,
            seen_tokens=self._seen,
            state=self._state(),
        )
        if admission is Admission.DUPLICATE:
            return
        self._seen = frozenset({command.token})  # a lower one is refused by the highest
        self._highest_token = max(self._highest_token, command.token)
        self._noted.starts.append((command.token, command.rank, time.time()))
        if admission is not Admission.START:
            self._noted.refused_count += 1
            failure = Failure(kind=FailureKind.REFUSED, message=admission.value)
            ended = RankEnded(result=None, failure=failure, timed_begun_s=None, log_tail="")
            self.spool.append(command.token, rank=command.rank, body=ended, born_s=now)
            return
        self._resources = TimedResources(command, now=now, rng=self._rng)
        self._rank = RunningRank(
            command,
            resources=self._resources,  # type: ignore[arg-type] # it has what a rank asks for
            report=lambda body: self._report(command, body),
            progress_timeout_s=_PROGRESS_TIMEOUT_S,
            now=now,
        )
        self._rank.start()
        self._heartbeat.send_soon()

    def _lead_on(self, rank: RunningRank, command: Peers | Shape | Go, *, now: float) -> None:
        if isinstance(command, Peers):
            rank.peers(command, now=now)
        elif isinstance(command, Shape):
            rank.shape(command, now=now)
        else:
            rank.go(command, received_s=now)

    def _live(self, *, now: float) -> None:
        """Let happen what has happened on the machine."""
        if self._rank is None or self._resources is None:
            return
        self._now = now
        for event in self._resources.take_due(now=now):
            self._rank.handle(event, now=now)
        if now - self._ticked_s >= _TICK_S:
            self._ticked_s = now
            unconfirmed_s = min(self._heartbeat.unconfirmed_s(now=now), now - self._rank.begun_s)
            if unconfirmed_s > self._lease_s / 2 and not self._rank.is_ending:
                self._noted.lost_count += 1
                self._rank.fail(FailureKind.AGENT_LOST, "no confirmation from the server")
            self._rank.tick(now=now)
        if self._rank.is_over:
            self._rank = self._resources = None
            self._heartbeat.send_soon()

    def _report(self, command: StartRank, body: ReportBody) -> None:
        born_s = self._now
        if isinstance(body, Samples) and self._resources is not None:
            born_s = self._resources.instant_of(body.samples[0].tick)
        self.spool.append(command.token, rank=command.rank, body=body, born_s=born_s)

    def _state(self) -> AgentState:
        return AgentState.IDLE if self._rank is None else AgentState.BUSY

    def _beat(self, now: float) -> Heartbeat:
        return Heartbeat(
            agent_id=self.agent_id,
            boot_id=self._heartbeat.boot_id,
            counter=self._heartbeat.next(now=now),
            state=self._state(),
            serving_token=self._rank.token if self._rank is not None else None,
            highest_token=self._highest_token,
            agent_time_s=time.time(),
            echo=self._heartbeat.echo(now=now),
            facts=self._facts,
            backlog=self._delivery.backlog(now=now),
            disk_free_bytes=2**40,
        )
