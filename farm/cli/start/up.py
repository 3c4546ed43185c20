"""`farm up`: a whole farm on this machine until Ctrl-C."""

from __future__ import annotations

from typing import NoReturn

import click

from farm.cli.output import command_hint, to_stderr
from farm.cli.session import settings
from farm.embedded.farm import EmbeddedFarm
from farm.embedded.signals import Stopped, StopSignals

_TEND_EVERY_S = 0.5
agents_option = click.option(
    "--agents", default=2, show_default=True, type=click.IntRange(min=1), help="Number of agents."
)


def run_until_signal(farm: EmbeddedFarm, signals: StopSignals) -> NoReturn:
    """Look after a running farm until a signal raises `Stopped`."""
    while True:
        farm.check_processes()
        signals.pause(_TEND_EVERY_S)


@click.command()
@agents_option
def up(agents: int) -> None:
    """Run Redis, the store, scheduler, collector, web server and agents until Ctrl-C.

    Everything is kept in FARM_HOME: the SQLite store, the logs (logs/NAME.log) and the data of
    the embedded Redis. Each agent gets equal cores of its own.
    """
    loaded = settings()
    is_up = False
    with StopSignals() as signals:
        try:
            with EmbeddedFarm(loaded, agents=agents, signals=signals, report=to_stderr) as farm:
                is_up = True
                click.echo(f"Home: {farm.settings.home}")
                click.echo(f"Dashboard: {farm.dashboard_url} (Ctrl-C stops)")
                if (hint := command_hint()) is not None:
                    click.echo(hint)
                run_until_signal(farm, signals)
        except Stopped:
            # Once it was up, Ctrl-C is how it is meant to end.
            if not is_up:
                raise click.Abort from None
