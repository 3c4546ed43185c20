"""What may happen to an agent and its machine."""

from __future__ import annotations

from collections.abc import Callable

from farm.messages.trainer_lines import Failure, FailureKind
from tests.protocol.agent import SimulatedAgent


def _raise(agent: SimulatedAgent) -> None:
    if agent.resources is not None:
        failure = Failure(kind=FailureKind.TRAINER_RAISED, message="a test asked for it")
        agent.resources.fail(failure)


def _kill_trainer(agent: SimulatedAgent) -> None:
    if agent.resources is not None:
        agent.resources.die()


def restart(agent: SimulatedAgent) -> None:
    agent.die()
    agent.start()


def _wipe(agent: SimulatedAgent) -> None:
    agent.wipe()
    agent.start()


def _freeze(agent: SimulatedAgent) -> None:
    agent.is_frozen = agent.is_alive


def _thaw(agent: SimulatedAgent) -> None:
    agent.is_frozen = False


def _fill_disk(agent: SimulatedAgent) -> None:
    agent.is_disk_full = True


def _free_disk(agent: SimulatedAgent) -> None:
    agent.is_disk_full = False


def _stick(agent: SimulatedAgent) -> None:
    agent.is_machine_stuck = True


def _loosen(agent: SimulatedAgent) -> None:
    agent.is_machine_stuck = False


def _jump(agent: SimulatedAgent) -> None:
    agent.skew_s = 3600.0 if agent.skew_s <= 0 else -3600.0


STRIKES: dict[str, Callable[[SimulatedAgent], None]] = {
    "agent dies": SimulatedAgent.die,
    "agent starts": SimulatedAgent.start,
    "agent restarts": restart,
    "agent restarts without its disk": _wipe,
    "agent is stopped": _freeze,
    "agent goes on": _thaw,
    "broker client dies": SimulatedAgent.kill_broker_client,
    "trainer is killed": _kill_trainer,
    "trainer raises": _raise,
    "disk is full": _fill_disk,
    "disk has room": _free_disk,
    "machine is stuck": _stick,
    "machine goes on": _loosen,
    "calendar jumps": _jump,
}
