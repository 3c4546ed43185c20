"""Options that name a price table, for commands that show costs."""

from __future__ import annotations

from pathlib import Path

import click

from farm.errors import InvalidSpec
from farm.recommend.prices import Prices, load_prices
from farm.settings.server import Settings

prices_option = click.option(
    "--prices",
    "prices_file",
    type=click.Path(path_type=Path),
    help="CSV file with what VMs cost, instead of FARM_PRICES or the shipped table.",
)
region_option = click.option("--region", help="Whose prices, where the table has several.")


def prices_or_none(
    loaded: Settings, *, prices_file: Path | None = None, region: str | None = None
) -> Prices:
    """Return the prices for a table that is worth showing without them, too.

    Raises:
        InvalidSpec: what was asked for by an option cannot be had.
    """
    try:
        return load_prices(prices_file or loaded.prices, region=region)
    except InvalidSpec as error:
        if prices_file is not None or region is not None:
            raise
        click.echo(f"farm: no cost is shown: {error}", err=True)
        return Prices()
