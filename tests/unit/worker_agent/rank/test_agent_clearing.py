"""However a rank's parts fail to let go, the rank ends and its agent is free again."""

from __future__ import annotations

import dataclasses
import queue
import socket
from pathlib import Path

import pytest

from farm.messages.commands import StartRank
from farm.messages.reports import RankEnded, ReportBody
from tests.factories import job_spec
from worker_agent.config import load_config
from worker_agent.network.probing.probe import EchoServer
from worker_agent.rank.ports import PortRange
from worker_agent.rank.rank import RunningRank
from worker_agent.rank.resources import RankResources
from worker_agent.supervisor.events import AgentEvent, RankCleared, TrainerExited

COMMAND = StartRank(
    token=7, rank=0, agent_count=1, roles=("worker",), spec=job_spec(), prepare_timeout_s=30.0
)


@pytest.fixture
def events() -> queue.SimpleQueue[AgentEvent]:
    return queue.SimpleQueue()


@pytest.fixture
def resources(tmp_path: Path, events: queue.SimpleQueue[AgentEvent]) -> RankResources:
    environ = {
        "AGENT_STATE_DIR": str(tmp_path),
        "AGENT_ADVERTISE_ADDRESS": "127.0.0.1",
        "AGENT_TRAINER": "sleep 60",
    }
    ports = PortRange(28000, 28099)
    return RankResources(COMMAND, config=load_config(environ), ports=ports, post=events.put)


def test_a_part_that_cannot_let_go_does_not_keep_the_agent_busy(
    resources: RankResources,
    events: queue.SimpleQueue[AgentEvent],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_: EchoServer) -> None:
        raise PermissionError("not yours")

    address = resources.prepare()
    monkeypatch.setattr(EchoServer, "close", refuse)
    resources.clear()
    while not isinstance(event := events.get(timeout=60), RankCleared):
        pass
    assert event.token == COMMAND.token
    # What comes after the part that failed was let go of all the same.
    with socket.create_server(("127.0.0.1", address.trainer_ports[0])):
        pass


def test_a_rank_is_not_cleared_before_its_processes_were_looked_for(
    resources: RankResources,
    events: queue.SimpleQueue[AgentEvent],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outcomes: list[OSError | None] = [OSError(24, "Too many open files"), None]
    cleared_before: list[bool] = []

    def kill(*_: object, **__: object) -> int:
        cleared_before.append(not events.empty())
        if (outcome := outcomes.pop(0)) is not None:
            raise outcome
        return 0

    monkeypatch.setattr("worker_agent.rank.resources.kill_leftovers", kill)
    resources.clear()
    assert isinstance(events.get(timeout=60), RankCleared)
    assert (outcomes, cleared_before) == ([], [False, False])


def test_of_several_ranks_of_an_agent_it_is_said_which_has_failed(
    tmp_path: Path, events: queue.SimpleQueue[AgentEvent]
) -> None:
    spec = job_spec(world_size=4, axes={"ranks_per_agent": 2})
    command = dataclasses.replace(
        COMMAND, rank=1, agent_count=2, roles=("worker", "worker"), spec=spec
    )
    environ = {"AGENT_STATE_DIR": str(tmp_path), "AGENT_ADVERTISE_ADDRESS": "127.0.0.1"}
    config = load_config({**environ, "AGENT_TRAINER": "sleep 60"})
    ports = PortRange(28100, 28199)
    resources = RankResources(command, config=config, ports=ports, post=events.put)
    reports: list[ReportBody] = []
    rank = RunningRank(
        command, resources=resources, report=reports.append, progress_timeout_s=60.0, now=0.0
    )
    rank.start()
    rank.handle(TrainerExited(token=7, process=1, return_code=-9), now=1.0)
    while not isinstance(event := events.get(timeout=60), RankCleared):
        pass
    rank.handle(event, now=2.0)
    ended = reports[-1]
    assert isinstance(ended, RankEnded)
    assert ended.failure is not None
    assert ended.failure.message.startswith("process of rank 3: ")
