"""Messages between the server and one agent: doubled, delayed, in another order, lost."""

from __future__ import annotations

import random
from collections.abc import Callable

from farm.broker.celery_app import agent_queue
from tests.chaos.farm import LEASE_S, ChaosFarm
from tests.chaos.faults.contract import Fault, Heal

Order = Callable[[list[tuple[str, bytes]], random.Random], list[tuple[str, bytes]]]


class Interception:
    """Keeps each message from and to an agent, and withholds it if it `holds`."""

    def __init__(self, agent: str, *, holds: bool) -> None:
        self._agent = agent
        self._holds = holds
        self.kept: list[tuple[str, bytes]] = []

    def takes(self, link: str, queue: str, message: bytes) -> bool:
        if link != self._agent and queue != agent_queue(self._agent):
            return False
        self.kept.append((queue, message))
        return self._holds


def intercept(
    farm: ChaosFarm, agent: str, rng: random.Random, *, holds: bool, order: Order
) -> Heal:
    """Keep messages until the end, and push then what `order` makes of them."""
    found = Interception(agent, holds=holds)
    farm.links.add(found)

    def release() -> None:
        farm.links.remove(found)
        with farm.redis.client() as client:
            for queue, message in order(list(found.kept), rng):
                client.lpush(queue, message)

    return release


def as_they_came(messages: list[tuple[str, bytes]], rng: random.Random) -> list[tuple[str, bytes]]:
    del rng
    return messages


def shuffled(messages: list[tuple[str, bytes]], rng: random.Random) -> list[tuple[str, bytes]]:
    return rng.sample(messages, len(messages))


def nothing(messages: list[tuple[str, bytes]], rng: random.Random) -> list[tuple[str, bytes]]:
    del messages, rng
    return []


def double(farm: ChaosFarm, agent: str, rng: random.Random) -> Heal:
    """Let all messages pass, and bring each of them once more at the end, in any order."""
    return intercept(farm, agent, rng, holds=False, order=shuffled)


def delay(farm: ChaosFarm, agent: str, rng: random.Random) -> Heal:
    return intercept(farm, agent, rng, holds=True, order=as_they_came)


def reorder(farm: ChaosFarm, agent: str, rng: random.Random) -> Heal:
    return intercept(farm, agent, rng, holds=True, order=shuffled)


def lose(farm: ChaosFarm, agent: str, rng: random.Random) -> Heal:
    return intercept(farm, agent, rng, holds=True, order=nothing)


MESSAGE_FAULTS = (
    Fault(
        name="messages doubled",
        does="all messages of some seconds from and to an agent come once more, late and shuffled",
        lasts_s=(1.0, 6.0),
        limit_s=LEASE_S + 5,
        strike=double,
    ),
    Fault(
        name="messages delayed",
        does="they come late",
        lasts_s=(0.5, 3.0),
        limit_s=LEASE_S + 5,
        strike=delay,
    ),
    Fault(
        name="messages reordered",
        does="they come late and shuffled",
        lasts_s=(0.5, 2.0),
        limit_s=LEASE_S + 5,
        strike=reorder,
    ),
    Fault(
        name="messages lost",
        does="they never come",
        lasts_s=(0.5, 2.0),
        limit_s=LEASE_S + 5,
        strike=lose,
    ),
)
