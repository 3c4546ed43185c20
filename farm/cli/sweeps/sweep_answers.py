"""Prints the recommendations for a finished sweep, and their evidence."""

from __future__ import annotations

from collections.abc import Sequence

import click

from farm.recommend.sweeps.answers import OwnAnswer


def print_answers(answers: Sequence[OwnAnswer]) -> None:
    """Print a line for each; what comes of other sweeps is said."""
    for found in answers:
        click.echo(found.sentence)
