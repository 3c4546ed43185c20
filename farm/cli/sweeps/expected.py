"""What `farm submit --dry-run` expects of a sweep: its time and its cost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from farm.cli.advice.questions import memory_of, prices_of
from farm.cli.session import store
from farm.configuration.spec import JobSpec
from farm.recommend.expectation import Expectation
from farm.recommend.expected import expected as expected_of
from farm.settings.server import Settings
from farm.store.engine import reading
from farm.text import display
from farm.text.nouns import counted


def expected(
    loaded: Settings, jobs: Sequence[JobSpec], *, prices_file: Path | None, region: str | None
) -> Expectation:
    """Predict every job from the farm's own measurements.

    Raises:
        FarmError: there is no store, or the prices do not fit.
    """
    prices = prices_of(loaded, prices_file, region)
    with store(loaded) as engine, reading(engine) as session:
        return expected_of(session, jobs, prices=prices, memory=memory_of(loaded))


def print_expectation(found: Expectation) -> None:
    """Say in some lines what is expected, and of which jobs nothing is known."""
    if found.known_count:
        steps = f"{display.roughly(found.training_s)} of training one after another"
        high = display.roughly(found.training_high_s)
        start = (
            "starting not known"
            if found.overhead_s is None
            else f"{display.roughly(found.overhead_s)} a job to start and end"
        )
        click.echo(
            f"expected of {found.known_count} of {counted(found.job_count, 'job')}: {steps} "
            f"(90 %: at most {high}), {start}, {display.roughly(found.machine_s)} of machine time, "
            + ("cost not known" if found.cost_usd is None else display.dollars(found.cost_usd))
        )
    for reason, count in found.unknown.items():
        click.echo(f"nothing is known of {counted(count, 'job')}: {reason}")
