"""`farm lab`: a farm of several hosts on this machine, and a sweep over the delay between them.

Other commands that measure over real delays take `lab_farm` from here.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import click

from farm.cli.output import to_stderr
from farm.cli.session import settings
from farm.cli.start.demonstration import demonstrate, gang_widths
from farm.embedded.farm import EmbeddedFarm
from farm.embedded.signals import StopSignals
from farm.embedded.sites import ANY_SCRIPT, LocalAgent, gpu_share, share_cores
from farm.errors import FarmError
from farm.lab.hosts import MAX_HOSTS
from farm.lab.lab import Lab
from farm.lab.slots import clear_dead_labs
from farm.lab.system import what_is_missing
from farm.settings.server import Settings
from farm.submission import plan
from farm.text.plurals import counted

# Beyond it the sweep would take hours.
_MAX_DELAY_MS = 200


def _refuse_nan(ctx: click.Context, param: click.Parameter, value: float) -> float:
    # It is neither below nor above any bound.
    if math.isnan(value):
        raise click.BadParameter("nan is not a delay", ctx, param)
    return value


@click.command()
@click.option(
    "--agents",
    default=4,
    show_default=True,
    type=click.IntRange(2, MAX_HOSTS),
    help="Number of hosts, with an agent each.",
)
@click.option(
    "--delay-ms",
    default=20.0,
    show_default=True,
    type=click.FloatRange(0, _MAX_DELAY_MS, min_open=True),
    callback=_refuse_nan,
    help="One-way delay between any two hosts, to compare with none.",
)
@click.option("--exit", "and_exit", is_flag=True, help="Stop when the sweep is over.")
@click.option("--clear", is_flag=True, help="Only remove what crashed labs have left.")
@click.pass_context
def lab(ctx: click.Context, *, agents: int, delay_ms: float, and_exit: bool, clear: bool) -> None:
    """Run a farm of several hosts on this machine, and measure the cost of a delay between them.

    Each host is a network namespace with an address of its own; every packet between two of them
    crosses a link that delays it. Needs root and the packages vde2 and vde-wirefilter. Afterwards
    the dashboard stays up until Ctrl-C; with --exit the lab is removed.
    """
    if missing := what_is_missing():
        raise FarmError(missing)
    if clear:
        count = clear_dead_labs()
        click.echo(f"removed {counted(count, 'dead lab')}")
        return
    loaded = settings()

    def start(signals: StopSignals) -> AbstractContextManager[EmbeddedFarm]:
        return lab_farm(loaded, signals, hosts=agents)

    sweep = lab_sweep(agents, delay_ms=delay_ms)
    ctx.exit(0 if demonstrate(start, planned=plan(sweep), and_exit=and_exit) else 1)


def lab_sweep(agents: int, *, delay_ms: float) -> dict[str, Any]:
    """Return the sweep for that many hosts: gangs of 2, 4, 8 ... and of all, near and far."""
    import tomllib

    sweep = tomllib.loads(files("farm.cli").joinpath("lab.toml").read_text())
    for case in sweep["case"]:
        if case["world_size"] == 2:
            case["world_size"] = gang_widths(agents)
            case["one_way_delay_ms"] = [0, delay_ms]
    return dict(sweep)


@contextmanager
def lab_farm(loaded: Settings, signals: StopSignals, *, hosts: int) -> Iterator[EmbeddedFarm]:
    """Make a lab and run a farm in it, an agent on each host; remove both on leaving.

    Raises:
        FarmError: no root, a program is missing, or the system refuses.
    """
    with Lab(hosts=hosts) as lab:
        sites = lab_sites(lab, home=loaded.home.absolute())
        to_stderr(f"starting a farm with {hosts} hosts in {loaded.home}")
        with EmbeddedFarm(
            loaded,
            sites=sites,
            broker_host=lab.server_address,
            signals=signals,
            report=to_stderr,
        ) as farm:
            yield farm


def lab_sites(lab: Lab, *, home: Path) -> list[LocalAgent]:
    """Return the settings of each host's agent; hosts share cores if there are too few."""
    cores = sorted(os.sched_getaffinity(0))
    count = len(lab.hosts)
    is_shared = count > len(cores)
    if is_shared:
        to_stderr(
            f"{count} hosts share {len(cores)} cores: gangs of more than {len(cores)} hosts are "
            "slower here than on machines of their own, at any delay"
        )
        # One core each as long as there are any, so that small gangs share none.
        shares: list[tuple[int, ...]] = [(cores[number % len(cores)],) for number in range(count)]
    else:
        shares = share_cores(cores, agents=count)
    return [
        LocalAgent(
            agent_id=host.name,
            settings={
                "AGENT_ADVERTISE_ADDRESS": host.address,
                "AGENT_INTERFACE": host.interface,
                "AGENT_CPUS": ",".join(map(str, cpus)),
                "AGENT_GPUS": gpu_share(number, count=count),
                "AGENT_SHARES_CORES": "true" if is_shared else "false",
                "AGENT_STATE_DIR": str(home / "agents" / host.name),
                **ANY_SCRIPT,
            },
            prefix=host.command(()),
        )
        for number, (host, cpus) in enumerate(zip(lab.hosts, shares, strict=True))
    ]
