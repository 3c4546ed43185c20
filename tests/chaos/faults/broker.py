"""Redis: killed, emptied, frozen, full."""

from __future__ import annotations

import random

from tests.chaos.farm import LEASE_S, ChaosFarm
from tests.chaos.faults.contract import Fault, Heal, Scope, all_serve

RESTART_LIMIT_S = 10.0


def restart(farm: ChaosFarm, agent: str, rng: random.Random) -> Heal:
    """Kill it; it comes back with what it had written down."""
    del agent, rng
    farm.redis.kill()
    return farm.redis.start


def empty(farm: ChaosFarm, agent: str, rng: random.Random) -> Heal:
    """Kill it; it comes back and knows nothing."""
    del agent, rng
    farm.redis.kill()
    farm.redis.forget()
    return farm.redis.start


def freeze(farm: ChaosFarm, agent: str, rng: random.Random) -> Heal:
    """Connections stay open and nothing answers."""
    del agent, rng
    farm.redis.freeze()
    return farm.redis.thaw


def fill(farm: ChaosFarm, agent: str, rng: random.Random) -> Heal:
    """Let it have no more memory than it uses, or than it needs to begin with."""
    del agent
    with farm.redis.client() as client:
        used = int(client.info("memory")["used_memory"])
        client.config_set("maxmemory", rng.choice([1, used + 50_000]))

    def make_room() -> None:
        with farm.redis.client() as client:
            client.config_set("maxmemory", 0)

    return make_room


BROKER_FAULTS = (
    Fault(
        name="Redis restarted",
        does="SIGKILL; it comes back with its file",
        scope=Scope.FARM,
        lasts_s=(0.1, 1.0),
        limit_s=RESTART_LIMIT_S,
        strike=restart,
        serves=all_serve,
    ),
    Fault(
        name="Redis emptied",
        does="SIGKILL; it comes back without its file",
        scope=Scope.FARM,
        lasts_s=(0.1, 1.0),
        limit_s=RESTART_LIMIT_S,
        strike=empty,
        serves=all_serve,
    ),
    Fault(
        name="Redis frozen, briefly",
        does="SIGSTOP for less than half a lease",
        scope=Scope.FARM,
        lasts_s=(0.3, LEASE_S / 2 - 0.5),
        limit_s=RESTART_LIMIT_S,
        counts_from_end=True,
        strike=freeze,
        serves=all_serve,
    ),
    Fault(
        name="Redis frozen, for long",
        does="SIGSTOP for one and a half leases",
        scope=Scope.FARM,
        lasts_s=(1.4 * LEASE_S, 1.6 * LEASE_S),
        limit_s=RESTART_LIMIT_S,
        counts_from_end=True,
        strike=freeze,
        serves=all_serve,
    ),
    Fault(
        name="Redis full, briefly",
        does="it takes no more messages for less than half a lease",
        scope=Scope.FARM,
        lasts_s=(0.3, LEASE_S / 2 - 0.5),
        limit_s=RESTART_LIMIT_S,
        counts_from_end=True,
        strike=fill,
        serves=all_serve,
    ),
    Fault(
        name="Redis full, for long",
        does="for one and a half leases",
        scope=Scope.FARM,
        lasts_s=(1.4 * LEASE_S, 1.6 * LEASE_S),
        limit_s=RESTART_LIMIT_S,
        counts_from_end=True,
        strike=fill,
        serves=all_serve,
    ),
)
