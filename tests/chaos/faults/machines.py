"""What happens to an agent's machine: its link, its clock, its disk."""

from __future__ import annotations

import random
import shutil
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


def move_state_away(farm: ChaosFarm, agent: str, rng: random.Random) -> Heal:
    """Take the agent's state folder away; then it is back as it was."""
    del rng
    folder = farm.state_dir(agent)
    aside = folder.with_name(f"{agent}.aside")
    folder.rename(aside)

    def put_back() -> None:
        aside.rename(folder)

    return put_back


def remove_state(farm: ChaosFarm, agent: str, rng: random.Random) -> Heal:
    """Remove the folder with all that is in it; then there is an empty one."""
    del rng
    folder = farm.state_dir(agent)
    while folder.exists():  # the agent may write into it meanwhile
        shutil.rmtree(folder, ignore_errors=True)
    return lambda: folder.mkdir(mode=0o700)


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
    Fault(
        name="state folder away, briefly",
        does="an agent's state folder is moved away while it runs, and is back in seconds",
        lasts_s=(0.2, 3.0),
        limit_s=LEASE_S + 5,
        strike=move_state_away,
    ),
    Fault(
        name="state folder away, for long",
        does="it is back after more than a lease",
        lasts_s=(LEASE_S + 1.0, LEASE_S + 3.0),
        limit_s=LEASE_S + 5,
        strike=move_state_away,
    ),
    Fault(
        name="state folder removed",
        does="with all that is in it; another one, which is empty, comes seconds later",
        lasts_s=(1.0, 4.0),
        limit_s=LEASE_S + 5,
        strike=remove_state,
    ),
)
