"""`farm demo`: runs a small real sweep on a farm of its own, and recommends from it."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import click

from farm.cli.output import to_stderr
from farm.cli.session import settings
from farm.cli.start.demonstration import demonstrate, gang_widths
from farm.cli.start.up import agents_option
from farm.embedded.farm import EmbeddedFarm
from farm.embedded.signals import StopSignals
from farm.submission import plan
from farm.text.plurals import counted


@click.command()
@agents_option
@click.option("--exit", "and_exit", is_flag=True, help="Stop when the sweep is over.")
@click.pass_context
def demo(ctx: click.Context, *, agents: int, and_exit: bool) -> None:
    """Run a whole farm on this machine, measure a small sweep, and say what to train on.

    Everything is kept in FARM_HOME: a second run is a sweep of its own, and its recommendation uses
    both. Afterwards the dashboard stays up until Ctrl-C; with --exit the farm stops. The exit
    status is 0 only if every job succeeded.
    """
    loaded = settings()

    def start(signals: StopSignals) -> EmbeddedFarm:
        to_stderr(f"starting a farm with {counted(agents, 'agent')} in {loaded.home}")
        return EmbeddedFarm(loaded, agents=agents, signals=signals, report=to_stderr)

    ctx.exit(0 if demonstrate(start, planned=plan(demo_sweep(agents)), and_exit=and_exit) else 1)


def demo_sweep(agents: int) -> dict[str, Any]:
    """Return the demo's sweep for that many agents: gangs of 2, 4, 8 ... and of all of them."""
    import tomllib

    sweep = tomllib.loads(files("farm.cli").joinpath("demo.toml").read_text())
    for case in sweep["case"]:
        if case["world_size"] == 2:
            case["world_size"] = gang_widths(agents)
    # One agent alone cannot form a gang.
    sweep["case"] = [case for case in sweep["case"] if agents > 1 or case["world_size"] == 1]
    return dict(sweep)
