"""Prints the recommendations for a finished sweep, and their evidence."""

from __future__ import annotations

from collections.abc import Sequence

import click

from farm.configuration.axes import CONDITION_AXES
from farm.configuration.scripts import workload_text
from farm.recommend.contracts import Question
from farm.recommend.sweeps.answers import OwnAnswer

MOST_ANSWERS = 8  # to one sweep


def print_answers(answers: Sequence[OwnAnswer]) -> None:
    """Print a line for each; what comes of other sweeps is said."""
    for found in answers:
        best = found.answer.recommended
        rests = "" if best is None else f"; it {found.share_of(best).words}"
        click.echo(f"Recommended for {_asked(found.question)}: {found.answer.headline}{rests}")


def _asked(question: Question) -> str:
    values = zip(CONDITION_AXES, question.conditions, strict=True)
    network = [axis.said(value) for axis, value in values if value != axis.absent]
    workload = workload_text(question.model, question.dataset)
    return ", ".join([workload, f"batch {question.global_batch_size}", *network])
