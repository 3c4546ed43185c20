"""The server's own programs: killed, stopped, or there twice."""

from __future__ import annotations

import datetime as dt
import random
import signal
import urllib.request
from collections.abc import Callable
from http.client import HTTPException

from tests.chaos.farm import LEASE_S, ChaosFarm
from tests.chaos.faults.contract import (
    Fault,
    Heal,
    Scope,
    all_agents_serve,
    all_serve,
    scheduler_serves,
)
from tests.chaos.glimpse import Glimpse

Strike = Callable[[ChaosFarm, str, random.Random], Heal]
HOUR_S, DAY_S = 3600.0, 86_400.0


def killed(name: str) -> Strike:
    def strike(farm: ChaosFarm, agent: str, rng: random.Random) -> Heal:
        del agent, rng
        farm.signal(name, signal.SIGKILL)
        return lambda: farm.start_server(name)

    return strike


def stopped(name: str) -> Strike:
    def strike(farm: ChaosFarm, agent: str, rng: random.Random) -> Heal:
        del agent, rng
        farm.signal(name, signal.SIGSTOP)
        return lambda: farm.signal(name, signal.SIGCONT)

    return strike


def second_scheduler(farm: ChaosFarm, agent: str, rng: random.Random) -> Heal:
    """Two of them at once; then either goes, by a kill or as it should."""
    del agent
    second = "scheduler-2"
    farm.start_server(second)
    goes_first = rng.choice([True, False])
    number = rng.choice([signal.SIGKILL, signal.SIGTERM])

    def end() -> None:
        if goes_first:  # the second one goes on as the first
            farm.processes["scheduler"], farm.processes[second] = (
                farm.processes[second],
                farm.processes["scheduler"],
            )
        farm.signal(second, number)
        farm.processes[second].wait(timeout=30)

    return end


def set_clock(by_s: tuple[float, ...]) -> Strike:
    def strike(farm: ChaosFarm, agent: str, rng: random.Random) -> Heal:
        del agent
        farm.set_clock("server", wrong_by_s=rng.choice(by_s))
        return lambda: farm.set_clock("server", wrong_by_s=0.0)

    return strike


def web_serves(farm: ChaosFarm, agent: str, seen: Glimpse, since: dt.datetime) -> bool:
    del agent, seen, since
    return web_is(farm, "ready", within_s=2)


def web_is(farm: ChaosFarm, state: str, *, within_s: float) -> bool:
    """Ask the web server whether it is "ready", or "live"."""
    address = f"http://127.0.0.1:{farm.web_port}/health/{state}"
    try:
        with urllib.request.urlopen(address, timeout=within_s) as answer:
            return bool(answer.status == 200)
    except (OSError, HTTPException):
        return False


SERVER_FAULTS = (
    Fault(
        name="scheduler killed",
        does="SIGKILL; it is started again within a second",
        scope=Scope.FARM,
        lasts_s=(0.1, 1.0),
        limit_s=10.0,
        strike=killed("scheduler"),
        serves=scheduler_serves,
    ),
    Fault(
        name="scheduler stopped",
        does="SIGSTOP for up to a lease",
        scope=Scope.FARM,
        lasts_s=(0.5, LEASE_S),
        limit_s=10.0,
        counts_from_end=True,
        strike=stopped("scheduler"),
        serves=scheduler_serves,
    ),
    Fault(
        name="two schedulers",
        does="a second one for some seconds, after which either goes",
        scope=Scope.ASIDE,
        lasts_s=(2.0, 6.0),
        limit_s=10.0,
        strike=second_scheduler,
        serves=scheduler_serves,
    ),
    Fault(
        name="server's clock set forward",
        does="by two leases, an hour or a day, and back again",
        scope=Scope.FARM,
        lasts_s=(0.5, LEASE_S),
        limit_s=10.0,
        counts_from_end=True,
        strike=set_clock((2 * LEASE_S, HOUR_S, DAY_S)),
        serves=all_serve,
    ),
    Fault(
        name="server's clock set back",
        does="likewise, and forward again",
        scope=Scope.FARM,
        lasts_s=(0.5, LEASE_S),
        limit_s=10.0,
        counts_from_end=True,
        strike=set_clock((-2 * LEASE_S, -HOUR_S, -DAY_S)),
        serves=all_serve,
    ),
    Fault(
        name="collector killed",
        does="SIGKILL; it is started again within a second",
        scope=Scope.FARM,
        lasts_s=(0.1, 1.0),
        limit_s=10.0,
        strike=killed("collector"),
        serves=all_agents_serve,
    ),
    Fault(
        name="collector stopped",
        does="SIGSTOP for up to a lease",
        scope=Scope.FARM,
        lasts_s=(0.5, LEASE_S),
        limit_s=10.0,
        counts_from_end=True,
        strike=stopped("collector"),
        serves=all_agents_serve,
    ),
    Fault(
        name="web server killed",
        does="SIGKILL; it is started again within a second",
        scope=Scope.ASIDE,
        lasts_s=(0.1, 1.0),
        limit_s=10.0,
        strike=killed("web"),
        serves=web_serves,
    ),
)
