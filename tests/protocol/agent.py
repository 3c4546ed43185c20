"""An agent's lives: the real supervisor on a disk of its own, beside a simulated machine."""

from __future__ import annotations

import dataclasses
import errno
import json
import queue
import shutil
from pathlib import Path

from farm.messages.commands import StartRank
from farm.messages.reports import Report
from farm.settings.declaration import read_settings
from tests.factories import agent_facts
from tests.promises.protocol_values import Service
from tests.protocol.broker import Broker
from tests.protocol.broker_client import SimulatedBrokerClient
from tests.protocol.clock import Clock
from tests.protocol.machine import SimulatedResources
from worker_agent.config import AgentConfig
from worker_agent.settings import AgentSettings
from worker_agent.supervisor.events import Post
from worker_agent.supervisor.supervisor import Supervisor

HEARTBEAT_S = 1.0
PROGRESS_TIMEOUT_S = 30.0


class UnwaitedQueue(queue.SimpleQueue):  # type: ignore[type-arg] # it is generic for mypy alone
    """A queue of which nobody waits for more than there is."""

    def get(self, block: bool = True, timeout: float | None = None) -> object:
        return super().get(block=False)


class SimulatedAgent:
    """One agent and its machine. `offset_s`: its monotonic clock's; `skew_s`: its calendar's."""

    def __init__(
        self,
        agent_id: str,
        *,
        folder: Path,
        cpu: int,
        lease_s: float,
        broker: Broker,
        clock: Clock,
    ) -> None:
        self.agent_id = agent_id
        self.is_frozen = False
        self.is_disk_full = False
        self.is_machine_stuck = False  # what is asked of it waits; the agent goes on
        self.offset_s = 1000.0 * cpu
        self.skew_s = 0.0
        self.beat_s = 0.0  # when it made its last heartbeat
        self.services: list[Service] = []
        self.written: list[Report] = []  # by its present spool
        self.brought: list[Report] = []  # to the server, by those before
        self.lost: list[Report] = []  # with a disk, though they may be under way
        self._instant = self._disk = 0
        self._left: set[int] = set()  # numbers of reports that its last life had not brought away
        self._lost: dict[int, float] = {}  # token to when a life ended that served it
        self._folder = folder
        self._broker = broker
        self._clock = clock
        self._facts = agent_facts(machine_id=f"machine of {agent_id}", cpus=(cpu,))
        self.config = _config(agent_id, folder=folder, cpu=cpu, lease_s=lease_s)
        self._broker_client: SimulatedBrokerClient | None = None
        self._resources: SimulatedResources | None = None
        self._supervisor: Supervisor | None = None

    @property
    def is_alive(self) -> bool:
        return self._supervisor is not None

    @property
    def is_awake(self) -> bool:
        return self.is_alive and not self.is_frozen

    @property
    def resources(self) -> SimulatedResources | None:
        """What its rank holds, if it serves one."""
        return self._resources

    @property
    def serving(self) -> int | None:
        """The token of the rank whose processes run here."""
        return self.services[-1].token if self._resources is not None else None

    def silent_s(self, token: int) -> float:
        """Return for how long it can have said nothing to keep the lease of this attempt."""
        known_s = self._lost.get(token, self.beat_s)
        return self._clock.now_s - min(known_s, self.beat_s)

    def start(self) -> None:
        """Begin a life, on whatever the one before has left on the disk."""
        if self.is_alive:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        self._set_clock()
        supervisor = Supervisor(self.config, self._facts)
        self._supervisor = supervisor
        self._watch_disk(supervisor)
        supervisor.begin()
        self.turn()

    def die(self) -> None:
        """End at once, with everything that it runs; the disk stays as it is."""
        if self._supervisor is None:
            return
        self._left = {report.number for report in self.waiting()}
        self._supervisor.spool.close()
        self._supervisor = self._broker_client = None
        self.is_frozen = False
        if self.serving is not None:
            self._lost[self.serving] = self._clock.now_s
        self._end_service()

    def wipe(self) -> None:
        """Die and lose the disk, with whatever was not brought away yet.

        Beside its services on another disk those on this one are another agent's: it has forgotten
        what it has served.
        """
        self.die()
        self._disk += 1
        for report in self.written:
            (self.lost if report.number in self._left else self.brought).append(report)
        self.written = []
        shutil.rmtree(self._folder, ignore_errors=True)

    def turn(self) -> None:
        """Handle all that has happened here, and do what is due now."""
        if not self.is_awake:
            return
        assert self._supervisor is not None
        self._set_clock()
        while True:
            if self._broker_client is not None:
                self._broker_client.connect()
            has_handled = self._supervisor.step()
            if self._resources is not None and self._resources.is_cleared:
                self._end_service()
            if not has_handled:
                return

    def deliver(self, place: int, *, is_kept: bool = False) -> bool:
        """Hand over the command at this place of the queue; `is_kept`: it will come again."""
        commands = self._broker.commands[self.agent_id]
        if not commands or not self.is_awake or self._broker_client is None or self._broker.is_away:
            return False
        name, envelope = commands[place % len(commands)]
        if not self._broker_client.deliver(
            name, envelope, received_s=self._clock.now_s + self.offset_s
        ):
            return False
        if not is_kept:
            del commands[place % len(commands)]
        self.turn()
        return True

    def work(self) -> bool:
        """Let the next thing happen on its machine, which goes on while the agent is frozen."""
        resources = None if self.is_machine_stuck else self._resources
        has_worked = resources is not None and resources.work()
        self.turn()
        return has_worked

    def kill_broker_client(self) -> None:
        if self._broker_client is not None:
            self._broker_client.kill()
            self.turn()

    def make_broker_client(
        self, number: int, *, config: AgentConfig, purge: bool, post: Post
    ) -> object:
        """Replace `BrokerClientProcess` by a simulation."""
        self._broker_client = SimulatedBrokerClient(
            number,
            config=config,
            purge=purge,
            post=post,
            broker=self._broker,
            note_beat=self._note_beat,
        )
        return self._broker_client

    def make_resources(self, command: StartRank, *, post: Post) -> SimulatedResources:
        """Make what a rank asks for as it begins, in the place of `RankResources`."""
        self._instant += 1
        self._lost.pop(command.token, None)
        self.services.append(
            Service(
                agent_id=f"{self.agent_id}, disk {self._disk}",
                token=command.token,
                begun=self._instant,
                ended=None,
            )
        )
        self._resources = SimulatedResources(command, post=post)
        return self._resources

    def waiting(self) -> tuple[Report, ...]:
        """Return what its disk holds and the server has not confirmed to have."""
        if self._supervisor is not None:
            return self._supervisor.spool.pending(limit=10**9, max_bytes=10**9)
        reports = []
        for segment in sorted((self._folder / "spool").glob("*.jsonl")):
            for line in segment.read_text().splitlines():
                reports.append(Report(**json.loads(line)))
        return tuple(reports)

    @property
    def is_silent(self) -> bool:
        """Whether everything that it has written is confirmed, as far as this life knows."""
        if self._supervisor is None:
            return False
        spool = self._supervisor.spool
        return spool.confirmed == spool.last_number

    def _note_beat(self) -> None:
        self.beat_s = self._clock.now_s

    def _set_clock(self) -> None:
        self._clock.offset_s, self._clock.skew_s = self.offset_s, self.skew_s

    def _watch_disk(self, supervisor: Supervisor) -> None:
        """Note what the spool takes, and let it take nothing while the disk is full."""
        spool = supervisor.spool
        append = spool.append

        def watched(
            token: int, *, rank: int, kind: str, body: object, is_urgent: bool = True
        ) -> int:
            if self.is_disk_full:
                raise OSError(errno.ENOSPC, "No space left on device")
            number = append(token, rank=rank, kind=kind, body=body, is_urgent=is_urgent)
            assert isinstance(body, dict)
            self.written.append(Report(number=number, token=token, rank=rank, kind=kind, body=body))
            return number

        spool.append = watched  # type: ignore[method-assign]

    def _end_service(self) -> None:
        if self._resources is not None:
            self._instant += 1
            self.services[-1] = dataclasses.replace(self.services[-1], ended=self._instant)
            self._resources = None


def _config(agent_id: str, *, folder: Path, cpu: int, lease_s: float) -> AgentConfig:
    settings = read_settings(
        AgentSettings,
        {
            "AGENT_STATE_DIR": str(folder),
            "AGENT_HEARTBEAT_S": f"{HEARTBEAT_S:g}",
            "AGENT_PROGRESS_TIMEOUT_S": f"{PROGRESS_TIMEOUT_S:g}",
            "AGENT_SPOOL_MAX_BYTES": "1000000",
            "FARM_LEASE_S": f"{lease_s:g}",
            "FARM_LOG_LEVEL": "ERROR",
        },
        file={},
    )
    return AgentConfig(
        settings=settings,
        agent_id=agent_id,
        address="127.0.0.1",
        interface="lo",
        cpus=(cpu,),
        trainer=("no such trainer",),
        template=None,
    )
