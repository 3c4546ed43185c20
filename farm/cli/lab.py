"""`farm lab`: a farm of several hosts on this machine, and a sweep over the delay between them."""

from __future__ import annotations

import math
import os
from importlib.resources import files
from pathlib import Path
from typing import Any

import click

from farm.cli.demo import gang_widths, measure
from farm.cli.session import settings
from farm.cli.up import stay_up, to_stderr
from farm.embedded.cores import share_cores
from farm.embedded.farm import EmbeddedFarm
from farm.embedded.signals import Stopped, StopSignals
from farm.embedded.sites import AgentSite
from farm.errors import FarmError
from farm.lab.hosts import MAX_HOSTS
from farm.lab.lab import Lab
from farm.lab.slots import clear_dead_labs
from farm.lab.system import what_is_missing

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
@click.option("--clear", is_flag=True, help="Only remove what labs left whose owners are dead.")
@click.pass_context
def lab(ctx: click.Context, *, agents: int, delay_ms: float, and_exit: bool, clear: bool) -> None:
    """Run a farm of several hosts on this machine, and measure what the delay between them costs.

    Each host is a network namespace with an address of its own; every packet between two of them
    crosses a link that delays it. Needs root and the packages vde2 and vde-wirefilter. Afterwards
    the dashboard stays up until Ctrl-C; with --exit the lab is removed.
    """
    if missing := what_is_missing():
        raise FarmError(missing)
    if clear:
        count = clear_dead_labs()
        click.echo(f"removed {count} dead {'lab' if count == 1 else 'labs'}")
        return
    loaded = settings()
    succeeded = None
    with StopSignals() as signals:
        try:
            with Lab(hosts=agents) as hosts:
                sites = lab_sites(hosts, home=loaded.home.absolute())
                to_stderr(f"starting a farm with {agents} hosts in {loaded.home}")
                with EmbeddedFarm(
                    loaded,
                    sites=sites,
                    broker_host=hosts.server_address,
                    signals=signals,
                    report=to_stderr,
                ) as farm:
                    sweep = lab_sweep(agents, delay_ms=delay_ms)
                    succeeded = measure(farm, signals, sweep=sweep)
                    if not and_exit:
                        click.echo(f"\nDashboard: {farm.dashboard_url} (Ctrl-C stops)")
                        stay_up(farm, signals)
        except Stopped:
            # Once the sweep is over, Ctrl-C is how it is meant to end.
            if succeeded is None:
                raise click.Abort from None
    ctx.exit(0 if succeeded else 1)


def lab_sweep(agents: int, *, delay_ms: float) -> dict[str, Any]:
    """Return the sweep for that many hosts: gangs of 2, 4, 8 ... and of all, near and far."""
    import tomllib

    sweep = tomllib.loads(files("farm.cli").joinpath("lab.toml").read_text())
    for case in sweep["case"]:
        if case["world_size"] == 2:
            case["world_size"] = gang_widths(agents)
            case["one_way_delay_ms"] = [0, delay_ms]
    return dict(sweep)


def lab_sites(lab: Lab, *, home: Path) -> list[AgentSite]:
    """Return the place of each host's agent; more hosts than cores share them, and say so."""
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
        AgentSite(
            agent_id=host.name,
            settings={
                "AGENT_ADVERTISE_ADDRESS": host.address,
                "AGENT_INTERFACE": host.interface,
                "AGENT_CPUS": ",".join(map(str, cpus)),
                "AGENT_SHARES_CORES": "true" if is_shared else "false",
                "AGENT_STATE_DIR": str(home / "agents" / host.name),
            },
            prefix=host.command(()),
        )
        for host, cpus in zip(lab.hosts, shares, strict=True)
    ]
