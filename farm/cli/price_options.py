"""Options that name a price table, for commands that say what something costs."""

from __future__ import annotations

from pathlib import Path

import click

prices_option = click.option(
    "--prices",
    "prices_file",
    type=click.Path(path_type=Path),
    help="CSV file with what VMs cost, instead of FARM_PRICES or the shipped table.",
)
region_option = click.option("--region", help="Whose prices, where the table has several.")
