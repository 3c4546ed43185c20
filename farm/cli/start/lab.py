"""`farm lab`: a farm of several hosts on this machine, and a sweep over the delay between them."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from importlib.resources import files
from typing import Any

import click

from farm.cli.session import settings
from farm.cli.start.demonstration import demonstrate, gang_widths
from farm.cli.start.lab_farm import lab_farm
from farm.embedded.farm import EmbeddedFarm
from farm.embedded.signals import StopSignals
from farm.errors import FarmError
from farm.lab.hosts import MAX_HOSTS
from farm.lab.slots import clear_dead_labs
from farm.lab.system import what_is_missing
from farm.submission import plan
from farm.text.nouns import counted

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
