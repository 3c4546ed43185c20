"""An agent in several networks: a rank is where its job says, and is counted there."""

from __future__ import annotations

import dataclasses
import queue
from collections.abc import Iterator
from pathlib import Path

import pytest

from farm.errors import TrainerFailed
from farm.messages.commands import StartRank
from tests.factories import job_spec
from worker_agent.config import AgentConfig, load_config
from worker_agent.machine.hardware import read_facts
from worker_agent.rank.ports import PortRange
from worker_agent.rank.resources import RankResources
from worker_agent.supervisor.events import AgentEvent, RankCleared


@pytest.fixture
def config(tmp_path: Path) -> AgentConfig:
    return load_config(
        {
            "AGENT_ID": "vm-1",
            "AGENT_STATE_DIR": str(tmp_path),
            "AGENT_ADVERTISE_ADDRESS": "127.0.0.1",
            "AGENT_NETWORKS": "fast=127.0.0.2",
            "AGENT_TRAINER": "sleep 60",
        }
    )


class Ranks:
    """Makes the resources of a rank, and clears them all."""

    def __init__(self, config: AgentConfig) -> None:
        self._config = config
        self._events: queue.SimpleQueue[AgentEvent] = queue.SimpleQueue()
        self._made: list[RankResources] = []

    def of(self, network: str | None) -> RankResources:
        spec = job_spec(world_size=2, interface=network)
        command = StartRank(
            token=7, rank=0, agent_count=2, roles=("worker",), spec=spec, prepare_timeout_s=30.0
        )
        ports = PortRange(28200, 28299)
        made = RankResources(command, config=self._config, ports=ports, post=self._events.put)
        self._made.append(made)
        return made

    def clear(self) -> None:
        for made in self._made:
            made.clear()
            while not isinstance(self._events.get(timeout=20), RankCleared):
                pass


@pytest.fixture
def ranks(config: AgentConfig) -> Iterator[Ranks]:
    made = Ranks(config)
    yield made
    made.clear()


def test_a_rank_is_reached_in_the_network_that_its_job_names(ranks: Ranks) -> None:
    assert ranks.of("fast").prepare().host == "127.0.0.2"
    assert ranks.of(None).prepare().host == "127.0.0.1"


def test_a_network_that_the_agent_has_lost_is_a_reason(ranks: Ranks) -> None:
    with pytest.raises(
        TrainerFailed, match=r"network: expected one of this agent's, fast, got 'slow'"
    ):
        ranks.of("slow").prepare()


def test_an_address_that_has_gone_since_the_start_is_a_reason(config: AgentConfig) -> None:
    settings = dataclasses.replace(config.settings, networks={"fast": "203.0.113.9"})
    gone = Ranks(dataclasses.replace(config, settings=settings))
    with pytest.raises(TrainerFailed, match=r"203\.0\.113\.9"):
        gone.of("fast").prepare()
    gone.clear()


def test_an_agent_tells_the_networks_that_jobs_may_name(config: AgentConfig) -> None:
    assert "network:fast" in read_facts(config).capabilities
