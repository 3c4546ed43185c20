"""Whatever goes wrong with a rank's network is the rank's end, with its reason, and is undone."""

from __future__ import annotations

import errno
import os
import queue
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from farm.configuration.spec import EXACT_EMULATION, NetworkProfile
from farm.errors import EmulationFailed
from farm.messages.commands import RankAddress, StartRank
from tests.factories import job_spec
from worker_agent.config import load_config
from worker_agent.network import emulators
from worker_agent.network.emulators.contracts import Site
from worker_agent.rank.ports import PortRange
from worker_agent.rank.resources import RankResources
from worker_agent.supervisor.events import (
    AgentEvent,
    MeasuringPurpose,
    NetworkMeasured,
    RankCleared,
)

pytestmark = pytest.mark.alone

DELAYED = NetworkProfile(one_way_delay_s=0.01)
COMMAND = StartRank(
    token=7,
    rank=0,
    agent_count=2,
    roles=("worker",),
    spec=job_spec(network=DELAYED),
    prepare_timeout_s=30.0,
)
# No resolver takes a label of more than 63 letters: it raises no OSError.
UNSPEAKABLE = "x" * 70
Events = queue.SimpleQueue[AgentEvent]
E = TypeVar("E")


class FlawedKernel:
    """An emulator whose kernel fails as no emulator foresees; `shaped` is what it has applied."""

    name = "flawed"
    capabilities = (EXACT_EMULATION,)
    outlives_agent = False
    pids = ()
    shaped: NetworkProfile | None = None
    is_stuck = False

    def __init__(self, site: Site) -> None:
        del site

    def probe(self) -> str | None:
        return None

    def serves(self, profile: NetworkProfile) -> bool:
        return True

    def apply(
        self, profile: NetworkProfile, peers: tuple[RankAddress, ...]
    ) -> tuple[RankAddress, ...]:
        type(self).shaped = profile
        raise OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS))

    def check(self) -> None:
        if type(self).shaped is None:
            raise EmulationFailed("somebody took it away")

    def clear(self) -> None:
        if self.is_stuck:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        type(self).shaped = None


@pytest.fixture
def events() -> Events:
    return queue.SimpleQueue()


@pytest.fixture
def resources(
    tmp_path: Path, events: Events, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RankResources]:
    monkeypatch.setattr(emulators, "EMULATORS", (FlawedKernel,))
    monkeypatch.setattr(FlawedKernel, "shaped", None)
    environ = {
        "AGENT_STATE_DIR": str(tmp_path),
        "AGENT_ADVERTISE_ADDRESS": "127.0.0.1",
        "AGENT_TRAINER": "sleep 60",
    }
    made = RankResources(
        COMMAND, config=load_config(environ), ports=PortRange(28100, 28199), post=events.put
    )
    made.prepare()
    yield made
    made.clear()
    await_event(events, RankCleared)


def await_event(events: Events, kind: type[E]) -> E:
    while not isinstance(event := events.get(timeout=60), kind):
        pass
    return event


def address(host: str) -> RankAddress:
    return RankAddress(rank=1, host=host, probe_port=9, trainer_ports=(10,))


def test_a_peer_that_cannot_even_be_looked_up_is_a_reason(
    resources: RankResources, events: Events
) -> None:
    resources.measure((address(UNSPEAKABLE),), timeout_s=10)

    measured = await_event(events, NetworkMeasured)
    assert measured.purpose is MeasuringPurpose.UNTOUCHED
    assert measured.failure is not None
    assert measured.failure.startswith("UnicodeError: ")


def test_what_an_emulator_did_not_foresee_is_a_reason_and_is_undone(
    resources: RankResources, events: Events
) -> None:
    resources.shape(DELAYED, addresses=(address("127.0.0.1"),), timeout_s=10)

    measured = await_event(events, NetworkMeasured)
    assert measured.purpose is MeasuringPurpose.SHAPED
    assert measured.failure == "OSError: [Errno 105] No buffer space available"
    assert FlawedKernel.shaped is DELAYED
    resources.clear()
    assert await_event(events, RankCleared).failure is None
    assert FlawedKernel.shaped is None


@pytest.mark.parametrize(
    ("is_gone", "is_stuck", "failure"),
    [
        (False, False, None),
        (True, False, "the network profile was not there to the end: somebody took it away"),
        (False, True, "[Errno 16] Device or resource busy"),
    ],
    ids=["as it should", "gone before", "there afterwards"],
)
def test_a_success_says_whether_its_network_was_there_to_the_end_and_is_gone_now(
    resources: RankResources,
    events: Events,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_gone: bool,
    is_stuck: bool,
    failure: str | None,
) -> None:
    resources.shape(DELAYED, addresses=(address("127.0.0.1"),), timeout_s=10)
    await_event(events, NetworkMeasured)
    if is_gone:
        FlawedKernel.shaped = None
    monkeypatch.setattr(FlawedKernel, "is_stuck", is_stuck)

    resources.clear(has_succeeded=True)

    assert await_event(events, RankCleared).failure == failure
