"""Options, prices and fitted models, shared by the commands that answer questions."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from farm.cli.output import to_stderr
from farm.errors import InvalidSpec
from farm.measuring.measurement import OWN_ORIGIN
from farm.recommend.cache.fits import Fits
from farm.recommend.cache.knowledge import FITS_FOLDER, RecommenderCache, fit_default
from farm.recommend.prices import Prices, load_prices
from farm.settings.server import Settings
from farm.text.plurals import counted

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from farm.recommend.configuration import Observation
    from farm.recommend.contracts import StepTimeModel
    from farm.store.measurements.scripts import MeasuredScript

_F = TypeVar("_F", bound=Callable[..., Any])

origin_option = click.option(
    "--origin", default=OWN_ORIGIN, show_default=True, help="Whose measurements."
)
prices_option = click.option(
    "--prices",
    "prices_file",
    type=click.Path(path_type=Path),
    help="CSV file with prices of VMs, instead of FARM_PRICES or the shipped table.",
)
region_option = click.option("--region", help="Region of the prices, if the table has several.")

WORKLOAD_OPTIONS = (
    click.option("--model", help="May be left out where the origin has one workload."),
    click.option("--dataset", help="May be left out where the origin has one workload."),
)
SCRIPT_OPTIONS = (
    click.option("--script", help="Your own script, instead of --model: its newest version."),
    click.option("--script-sha256", metavar="DIGITS", help="Another version of --script."),
    click.option(
        "--parameter",
        "script_parameters",
        multiple=True,
        metavar="NAME=VALUE",
        help="Value of a parameter of --script; may be repeated.",
    ),
)


def with_options(options: Sequence[Callable[[_F], _F]], command: _F) -> _F:
    """Give a command options, which its help lists in their order."""
    for option in reversed(options):
        command = option(command)
    return command


def workload_options(command: _F) -> _F:
    """Give a command the options that name a model and a data set."""
    return with_options(WORKLOAD_OPTIONS, command)


def script_options(command: _F) -> _F:
    """Give a command the options that name a script; `requested_script` reads them."""
    return with_options(SCRIPT_OPTIONS, command)


def requested_script(
    session: Session,
    *,
    origin: str,
    script: str | None,
    script_sha256: str | None,
    script_parameters: tuple[str, ...],
) -> MeasuredScript | None:
    """Return the requested script, and print which other versions are left out.

    Raises:
        NotFound, InvalidSpec: as `measured_script`.
    """
    from farm.store.measurements.scripts import measured_script, others_warning

    if script is None:
        for option, value in (
            ("--script-sha256", script_sha256),
            ("--parameter", ", ".join(script_parameters)),
        ):
            if value:
                raise InvalidSpec(option, value, "--script as well")
        return None
    found = measured_script(
        session, origin=origin, script=script, sha256=script_sha256, parameters=script_parameters
    )
    if warning := others_warning(script, found):
        to_stderr(warning)
    return found


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
        to_stderr(f"no cost is shown: {error}")
        return Prices()


def prices_of(loaded: Settings, file: Path | None, region: str | None) -> Prices:
    """Return the prices of the file that was named, or else of the settings.

    Raises:
        InvalidSpec: the table does not fit, or lacks the region.
    """
    return load_prices(file or loaded.prices, region=region)


def recommender_cache(loaded: Settings) -> RecommenderCache:
    """Return a cache that fits at once and keeps its models in FARM_HOME."""
    return RecommenderCache(Fits(_fit, folder=loaded.home / FITS_FOLDER))


def _fit(observations: Sequence[Observation]) -> StepTimeModel:
    if sys.stderr.isatty():
        count = len(observations)
        click.echo(
            f"fitting to {counted(count, 'measurement')}, kept for the next question", err=True
        )
    return fit_default(observations)
