"""Prints the cells of a sweep as a table with a legend, then the recommendations."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from farm.cells.result_table import notes, table
from farm.cells.table import CellLine
from farm.cli.output import print_table, table_width, terminal_width
from farm.recommend.sweeps.answers import OwnAnswer
from farm.text.columns import Column


def print_cells(lines: Sequence[CellLine]) -> None:
    """Print the table of cells; transpose it if the terminal is too narrow."""
    columns, rows = table(lines)
    if sys.stdout.isatty() and table_width(columns, rows) > terminal_width():
        # A few cells fit where so many columns do not.
        turned = [list(texts) for texts in zip(*rows, strict=True)]
        titles = [Column(text, is_right=True) for text in turned[0]]
        names = [[column.title] for column in columns[1:]]
        rows = [name + texts for name, texts in zip(names, turned[1:], strict=True)]
        columns = [Column(columns[0].title), *titles]
    print_table(columns, rows)
    for note in notes(lines):
        click.echo(note)


def print_answers(answers: Sequence[OwnAnswer]) -> None:
    """Print a line for each; what comes of other sweeps is said."""
    for found in answers:
        click.echo(found.sentence)
