"""The farm: a server, a broker and agents, in simulated time."""

from __future__ import annotations

import datetime as dt
import queue
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import worker_agent.broker.broker_client_supervisor
import worker_agent.supervisor.supervisor
from farm.messages.commands import COMMAND_NAMES, Command, StartRank
from farm.messages.envelope import seal
from farm.scheduler.outgoing import Outgoing
from tests.factories import NOW, seconds
from tests.promises.protocol_values import Service, Spooled, StoreValue
from tests.promises.store_snapshot import spooled
from tests.protocol.agent import SimulatedAgent, UnwaitedQueue
from tests.protocol.broker import Broker
from tests.protocol.clock import Clock
from tests.protocol.server import LEASE_S, Answer, Server
from worker_agent.config import AgentConfig
from worker_agent.supervisor.events import Post

ROUND_EVERY_S = 1.0
MOMENT_S = 0.25


class ProtocolFarm:
    """Some agents, each on a machine of its own. The server's clock is true time."""

    def __init__(self, server: Server, home: Path, *, agent_count: int = 3) -> None:
        self.server = server
        self.clock = Clock()
        self.broker = Broker()
        self.agents = [
            SimulatedAgent(
                f"a{number}",
                folder=home / f"a{number}",
                cpu=number,
                lease_s=LEASE_S,
                broker=self.broker,
                clock=self.clock,
            )
            for number in range(1, agent_count + 1)
        ]
        self.job_ids: list[int] = []
        self.asked_again: set[int] = set()  # by a person, since this was last emptied
        self.round_s = 0.0  # when a scheduler last looked
        self._is_rung = False

    @contextmanager
    def running(self) -> Iterator[None]:
        """Put simulated machines, broker clients and clocks in the place of the real ones."""
        agents = {agent.agent_id: agent for agent in self.agents}

        def broker_client(number: int, *, config: AgentConfig, purge: bool, post: Post) -> object:
            agent = agents[config.agent_id]
            return agent.make_broker_client(number, config=config, purge=purge, post=post)

        def resources(
            command: StartRank, *, config: AgentConfig, post: Post, **others: object
        ) -> object:
            return agents[config.agent_id].make_resources(command, post=post)

        def nothing(*arguments: object, **others: object) -> int:
            return 0

        unwaited = types.SimpleNamespace(SimpleQueue=UnwaitedQueue, Empty=queue.Empty)
        replaced: Sequence[tuple[Any, str, object]] = (
            (worker_agent.broker.broker_client_supervisor, "BrokerClientProcess", broker_client),
            (worker_agent.supervisor.supervisor, "RankResources", resources),
            (worker_agent.supervisor.supervisor, "queue", unwaited),
            (worker_agent.supervisor.supervisor, "time", self.clock),
            # There are no processes and no networks to clean up after.
            (worker_agent.supervisor.supervisor, "reap_orphans", nothing),
            (worker_agent.supervisor.supervisor, "kill_leftovers", nothing),
            (worker_agent.supervisor.supervisor, "undo_leftovers", nothing),
        )
        with ExitStack() as stack:
            for module, name, simulated in replaced:
                stack.enter_context(patch.object(module, name, simulated))
            for agent in self.agents:
                agent.start()
            try:
                yield
            finally:
                for agent in self.agents:
                    agent.die()

    def submit(self, *, agent_count: int) -> None:
        self.job_ids.append(self.server.submit(agent_count=agent_count, now=self.now))
        self._is_rung = True

    def ask_again(self, job_id: int) -> None:
        """Retry a job that has failed or was cancelled."""
        self.server.ask_again(job_id, now=self.now)
        self.asked_again.add(job_id)

    def round(self, *, is_heard: bool = True, is_overtaken: bool = False) -> None:
        """Let a scheduler look; `is_heard`: it lives to send what it has decided.

        `is_overtaken`: so does another, between this one's look at what waits and its leases.
        """
        self._is_rung = False
        self.round_s = self.clock.now_s
        outgoing, overtaking = self.server.round(now=self.now, is_overtaken=is_overtaken)
        self._send_all(overtaking)
        if is_heard:
            self._send_all(outgoing)

    def collect_reports(self, place: int, *, is_heard: bool = True, is_kept: bool = False) -> bool:
        """Let a collector take a message; False where there is none.

        `is_heard`: it lives to confirm what it has stored. `is_kept`: the message will come again.
        """
        return self._collect(
            self.broker.reports, place, self.server.reports, is_heard=is_heard, is_kept=is_kept
        )

    def collect_heartbeat(
        self, place: int, *, is_heard: bool = True, is_kept: bool = False
    ) -> bool:
        """Likewise of the heartbeats."""
        return self._collect(
            self.broker.heartbeats, place, self.server.heartbeat, is_heard=is_heard, is_kept=is_kept
        )

    def go_on(self, *, after_s: float = MOMENT_S) -> bool:
        """Let some time pass in which nothing fails that is not broken already.

        A scheduler looks when a message gives it reason to, and at least once a second. Returns
        whether anything but heartbeats went on.
        """
        self.clock.now_s += after_s
        has_moved = False
        for agent in self.agents:
            agent.turn()
            has_moved |= agent.work()
        while self.collect_heartbeat(0):
            pass
        while self.collect_reports(0):
            has_moved = True
        if self._is_rung or self.clock.now_s >= self.round_s + ROUND_EVERY_S:
            has_moved |= self._is_rung
            self.round()
        for agent in self.agents:
            while agent.deliver(0):
                pass
        return has_moved

    def mend(self) -> None:
        """Let no fault go on."""
        self.broker.is_away = False
        for agent in self.agents:
            agent.is_frozen = agent.is_disk_full = agent.is_machine_stuck = False
            agent.start()
            self.server.drain(agent.agent_id, is_drained=False)

    @property
    def now(self) -> dt.datetime:
        return NOW + seconds(self.clock.now_s)

    def store(self) -> StoreValue:
        return self.server.value(now=self.now)

    def services(self) -> list[Service]:
        """Return which ranks the agents have served; the clock counts each agent's own events."""
        return [service for agent in self.agents for service in agent.services]

    def serving(self) -> dict[str, int]:
        """Return the tokens of the ranks whose processes run now, by agent."""
        return {a.agent_id: a.serving for a in self.agents if a.serving is not None}

    def silent_s(self, store: StoreValue) -> dict[str, float]:
        """Return for how long each leased agent can have said nothing to keep its lease."""
        leased = {a.id: a.attempt_id for a in store.agents if a.attempt_id is not None}
        return {
            agent.agent_id: agent.silent_s(leased[agent.agent_id])
            for agent in self.agents
            if agent.agent_id in leased
        }

    def written(self) -> list[Spooled]:
        """Return what the agents' spools took, and no disk was lost with."""
        return [
            entry
            for agent in self.agents
            for report in (*agent.brought, *agent.written)
            for entry in spooled(agent.agent_id, report)
        ]

    def lost(self) -> list[Spooled]:
        """Return what disks were lost with."""
        return [s for a in self.agents for r in a.lost for s in spooled(a.agent_id, r)]

    def waiting(self) -> list[Spooled]:
        """Return what is not known to be stored."""
        return [s for a in self.agents for r in a.waiting() for s in spooled(a.agent_id, r)]

    def _collect(
        self,
        messages: list[object],
        place: int,
        take: Callable[..., Answer],
        *,
        is_heard: bool,
        is_kept: bool,
    ) -> bool:
        if not messages or self.broker.is_away:
            return False
        place %= len(messages)
        agent_id, command, is_rung = take(messages[place], now=self.now)
        if not is_kept:
            del messages[place]
        if is_heard:
            self._send(agent_id, command)
        self._is_rung |= is_rung
        return True

    def _send_all(self, outgoing: Sequence[Outgoing]) -> None:
        for due in outgoing:
            self._send(due.agent_id, due.command)

    def _send(self, agent_id: str, command: Command) -> None:
        self.broker.send_command(agent_id, COMMAND_NAMES[type(command)], seal(command))
