"""What happens to an agent's machine: its link, its clock, its disk."""

from __future__ import annotations

import random
from contextlib import suppress

import psutil

from tests.chaos.farm import LEASE_S, ChaosFarm
from tests.chaos.faults.contract import Fault, Heal

HOUR_S = 3600.0


def cut_link(farm: ChaosFarm, agent: str, rng: random.Random) -> Heal:
    """Nothing passes between the agent and the broker, and nobody is told; then all that waits."""
    del rng
    farm.link(agent).cut()
    return farm.link(agent).mend


def shift_clock(farm: ChaosFarm, agent: str, rng: random.Random) -> Heal:
    farm.set_clock(agent, wrong_by_s=rng.choice([HOUR_S, -HOUR_S]))
    return lambda: farm.set_clock(agent, wrong_by_s=0.0)


def fill_disk(farm: ChaosFarm, agent: str, rng: random.Random) -> Heal:
    """Let no file of the agent's grow any more, as on a full disk; that needs no root."""
    del rng
    process = psutil.Process(farm.processes[agent].pid)
    limit_files(process, 0)

    def free() -> None:
        for one in (process, *process.children(recursive=True)):
            limit_files(one, psutil.RLIM_INFINITY)

    return free


def limit_files(process: psutil.Process, limit_bytes: int) -> None:
    # Where one has ended meanwhile, its number may be somebody else's by now.
    with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        process.rlimit(psutil.RLIMIT_FSIZE, (limit_bytes, psutil.RLIM_INFINITY))


MACHINE_FAULTS = (
    Fault(
        name="link cut, briefly",
        does="nothing passes between agent and broker for a quarter of a lease",
        lasts_s=(0.3, LEASE_S / 4),
        limit_s=LEASE_S + 5,
        strike=cut_link,
    ),
    Fault(
        name="link cut, for long",
        does="for longer than a lease; what has waited arrives late",
        lasts_s=(LEASE_S + 1.0, LEASE_S + 3.0),
        limit_s=LEASE_S + 5,
        strike=cut_link,
    ),
    Fault(
        name="clock wrong by an hour",
        does="an agent's clock jumps by an hour, ahead or back, and returns",
        lasts_s=(1.0, 3.0),
        limit_s=5.0,
        counts_from_end=True,
        strike=shift_clock,
    ),
    Fault(
        name="disk full",
        does="no file of an agent grows any more",
        lasts_s=(1.0, 3.0),
        limit_s=LEASE_S + 5,
        strike=fill_disk,
    ),
)
