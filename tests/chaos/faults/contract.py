"""What a fault is: how it strikes, how it ends, and by what its victim is known to serve again."""

from __future__ import annotations

import datetime as dt
import enum
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from tests.chaos.farm import ChaosFarm
from tests.chaos.glimpse import Glimpse

# Ends the fault.
Heal: TypeAlias = Callable[[], None]


class Scope(enum.Enum):
    AGENT = "agent"  # one agent, and with it its gang; others may be struck meanwhile
    ASIDE = "aside"  # nobody's job is in its way, so anything may be struck meanwhile
    FARM = "farm"  # everybody; nothing else is struck meanwhile, or nobody knew who did it


def agent_serves(farm: ChaosFarm, agent: str, seen: Glimpse, since: dt.datetime) -> bool:
    """Whether the agent was heard since then, and may be leased or is."""
    del farm
    found = seen.agents.get(agent)
    if found is None or found.heartbeat_at is None:
        return False
    return found.heartbeat_at > since and found.unclean is None


def all_agents_serve(farm: ChaosFarm, agent: str, seen: Glimpse, since: dt.datetime) -> bool:
    """Whether everybody was heard: broker, collector and store work together."""
    del agent
    return all(agent_serves(farm, name, seen, since) for name in farm.agents)


def scheduler_serves(farm: ChaosFarm, agent: str, seen: Glimpse, since: dt.datetime) -> bool:
    """Whether some attempt has been led on since then."""
    del farm, agent
    return seen.last_event_at is not None and seen.last_event_at > since


def all_serve(farm: ChaosFarm, agent: str, seen: Glimpse, since: dt.datetime) -> bool:
    """Whether everybody was heard, and the scheduler leads on."""
    return scheduler_serves(farm, agent, seen, since) and all_agents_serve(farm, agent, seen, since)


def _always(farm: ChaosFarm, agent: str) -> bool:
    del farm, agent
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """`lasts_s`: between which bounds a schedule draws how long it lasts.

    `limit_s`: how long the jobs that it strikes may take until they are leased again, are over, or
    are known to go on; from the strike, or from its end where it `counts_from_end`.
    `serves`: whether the victim serves again after an instant; `can_strike`: whether it has a
    victim there now; `lacks`: why this machine cannot have it, None if it can.
    `blinds`: the store does not answer before the fault ends. `broken`: called just before the
    fault ends; returns which promise of the server is broken, None if all hold.
    """

    name: str
    does: str
    scope: Scope = Scope.AGENT
    lasts_s: tuple[float, float]
    limit_s: float
    counts_from_end: bool = False
    strike: Callable[[ChaosFarm, str, random.Random], Heal]
    serves: Callable[[ChaosFarm, str, Glimpse, dt.datetime], bool] = agent_serves
    can_strike: Callable[[ChaosFarm, str], bool] = _always
    lacks: Callable[[], str | None] = lambda: None
    blinds: bool = False
    broken: Callable[[ChaosFarm], str | None] = lambda farm: None
