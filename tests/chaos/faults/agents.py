"""Faults of an agent, its broker client, its template and its trainers: kills, stops, old
versions."""

from __future__ import annotations

import datetime as dt
import random
import signal
from contextlib import suppress

import psutil

from tests.chaos.farm import LEASE_S, PROGRESS_TIMEOUT_S, ChaosFarm
from tests.chaos.faults.contract import Fault, Heal, Scope
from tests.chaos.glimpse import Glimpse
from tests.fakes.former_agent import FORMER_WIRE_VERSION


def kill(farm: ChaosFarm, agent: str, rng: random.Random) -> Heal:
    del rng
    farm.signal(agent, signal.SIGKILL)
    return lambda: farm.start_agent(agent)


def stop(farm: ChaosFarm, agent: str, rng: random.Random) -> Heal:
    del rng
    farm.signal(agent, signal.SIGSTOP)
    return lambda: farm.signal(agent, signal.SIGCONT)


def kill_broker_client(farm: ChaosFarm, agent: str, rng: random.Random) -> Heal:
    del rng
    return kill_process(farm.broker_client_of(agent))


def stop_broker_client(farm: ChaosFarm, agent: str, rng: random.Random) -> Heal:
    del rng
    return stop_process(farm.broker_client_of(agent))


def kill_template(farm: ChaosFarm, agent: str, rng: random.Random) -> Heal:
    del rng
    return kill_process(farm.template_of(agent))


def kill_trainer(farm: ChaosFarm, agent: str, rng: random.Random) -> Heal:
    trainers = farm.trainers_of(agent)
    return kill_process(rng.choice(trainers) if trainers else None)


def stop_trainer(farm: ChaosFarm, agent: str, rng: random.Random) -> Heal:
    trainers = farm.trainers_of(agent)
    return stop_process(rng.choice(trainers) if trainers else None)


def kill_process(process: psutil.Process | None) -> Heal:
    if process is not None:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    return lambda: None


def stop_process(process: psutil.Process | None) -> Heal:
    if process is None:
        return lambda: None
    with suppress(psutil.NoSuchProcess):
        process.suspend()

    def go_on() -> None:
        with suppress(psutil.NoSuchProcess):
            process.resume()

    return go_on


def start_twin(farm: ChaosFarm, agent: str, rng: random.Random) -> Heal:
    """Start another agent of the same id, as a copied virtual machine would."""
    name = f"{agent}-twin"
    farm.start_agent(name, agent_id=agent)
    number = rng.choice([signal.SIGKILL, signal.SIGTERM])

    def end() -> None:
        farm.signal(name, number)
        farm.processes[name].wait(timeout=30)

    return end


def start_old(farm: ChaosFarm, agent: str, rng: random.Random) -> Heal:
    """Start an agent that speaks a version of the wire before this one."""
    del agent, rng
    farm.start_agent("old", wire_version=FORMER_WIRE_VERSION)
    return lambda: farm.signal("old", signal.SIGKILL)


def old_is_unknown(farm: ChaosFarm, agent: str, seen: Glimpse, since: dt.datetime) -> bool:
    """Whether nobody has taken the old one for one of the farm's."""
    del farm, agent, since
    return "old" not in seen.agents


def has_broker_client(farm: ChaosFarm, agent: str) -> bool:
    return farm.broker_client_of(agent) is not None


def has_template(farm: ChaosFarm, agent: str) -> bool:
    return farm.template_of(agent) is not None


def has_trainer(farm: ChaosFarm, agent: str) -> bool:
    return bool(farm.trainers_of(agent))


AGENT_FAULTS = (
    Fault(
        name="agent killed",
        does="SIGKILL; it is started again within a second",
        lasts_s=(0.1, 1.0),
        limit_s=LEASE_S + 5,
        strike=kill,
    ),
    Fault(
        name="agent lost",
        does="SIGKILL; it is started again only after its lease",
        lasts_s=(LEASE_S + 0.5, LEASE_S + 2.0),
        limit_s=LEASE_S + 5,
        strike=kill,
    ),
    Fault(
        name="agent stopped, briefly",
        does="SIGSTOP for less than half a lease",
        lasts_s=(0.3, LEASE_S / 2 - 0.5),
        limit_s=LEASE_S + 5,
        strike=stop,
    ),
    Fault(
        name="agent stopped, for long",
        does="SIGSTOP for longer than its lease; it comes back with reports of a lost attempt",
        lasts_s=(LEASE_S + 1.0, LEASE_S + 3.0),
        limit_s=LEASE_S + 5,
        strike=stop,
    ),
    Fault(
        name="broker client killed",
        does="SIGKILL of the agent's child that speaks with the broker",
        lasts_s=(0.0, 0.0),
        limit_s=LEASE_S + 5,
        strike=kill_broker_client,
        can_strike=has_broker_client,
    ),
    Fault(
        name="broker client stopped",
        does="SIGSTOP of that child",
        lasts_s=(0.5, LEASE_S + 1.0),
        limit_s=LEASE_S + 5,
        strike=stop_broker_client,
        can_strike=has_broker_client,
    ),
    Fault(
        name="template killed",
        does="SIGKILL of the process that warm trainers are forked from",
        lasts_s=(0.0, 0.0),
        limit_s=5.0,
        strike=kill_template,
        can_strike=has_template,
    ),
    Fault(
        name="trainer killed",
        does="SIGKILL of one trainer of a gang",
        lasts_s=(0.0, 0.0),
        limit_s=5.0,
        strike=kill_trainer,
        can_strike=has_trainer,
    ),
    Fault(
        name="trainer stopped",
        does="SIGSTOP of one trainer of a gang, until it is found to be stalled",
        lasts_s=(PROGRESS_TIMEOUT_S + 4.0, PROGRESS_TIMEOUT_S + 5.0),
        limit_s=PROGRESS_TIMEOUT_S + 5.0,
        strike=stop_trainer,
        can_strike=has_trainer,
    ),
    Fault(
        name="two agents of one id",
        does="another agent of the same id for some seconds",
        lasts_s=(2.0, 5.0),
        limit_s=LEASE_S + 5,
        counts_from_end=True,
        strike=start_twin,
    ),
    Fault(
        name="agent of an old version",
        does="one that speaks the wire's version before this one",
        scope=Scope.ASIDE,
        lasts_s=(3.0, 5.0),
        limit_s=5.0,
        strike=start_old,
        serves=old_is_unknown,
    ),
)
