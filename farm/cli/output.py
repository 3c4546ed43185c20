"""Print tables, JSON and progress bars: rich on a terminal, plain lines into a pipe."""

from __future__ import annotations

import datetime as dt
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from farm.processes.standard_output import unfiltered
from farm.text.columns import Column
from farm.text.display import plain
from farm.text.log_text import one_line
from farm.values.codec import to_json

# A column of texts that is broken to less than this is no longer read.
_NARROWEST = 24
_LINE_EVERY_S = 5.0  # of a progress bar without a terminal

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")


def to_stderr(line: str) -> None:
    """Print a message that is not part of the result."""
    click.echo(f"farm: {line}", err=True)


def print_json(value: object) -> None:
    """Print one JSON document; instants as ISO 8601."""
    text = json.dumps(to_json(value), indent=2, default=_instant, allow_nan=False)
    click.echo(text.replace("\x7f", "\\u007f"))  # the one control character that json leaves


def print_table(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], *, title: str | None = None
) -> None:
    """Print rows of texts under their columns; nothing is cut, and into a pipe no line broken.

    On a terminal that is too narrow the widest column is broken, since reasons are long. Where
    that does not help, the terminal breaks the lines, which keeps every word to be copied.
    """
    rows = _as_lines(rows)
    if sys.stdout.isatty():
        widths = _widths(columns, rows)
        spared = max(0, max(widths) - _NARROWEST)
        if table_width(columns, rows) - spared <= terminal_width():
            _print_rich(columns, rows, title)
            return
    if title:
        click.echo(title)
    for line in plain_table(columns, rows):
        click.echo(line)


def command_hint() -> str | None:
    """Return where the command `farm` is, if the shell would not find it; else None."""
    program = Path(sys.argv[0]).absolute()
    if program.name != "farm" or shutil.which("farm") is not None:
        return None
    return (
        f"`farm` is not on your PATH: in another terminal, `source {program.parent}/activate` "
        f"first, or write {program}"
    )


def table_width(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> int:
    """Return how many characters a table on a terminal takes."""
    # Rich sets three characters between two columns, and one at either end.
    return sum(_widths(columns, rows)) + 3 * len(columns)


def terminal_width() -> int:
    """Return the number of characters in a line of the terminal."""
    return shutil.get_terminal_size().columns


def plain_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[str]:
    """Align rows with two spaces between the columns, the titles first."""
    table = [[column.title for column in columns], *_as_lines(rows)]
    widths = _widths(columns, table[1:])
    return [
        "  ".join(
            cell.rjust(width) if column.is_right else cell.ljust(width)
            for cell, width, column in zip(row, widths, columns, strict=True)
        ).rstrip()
        for row in table
    ]


def _as_lines(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Keep each cell to its line, since it may be what an agent said, and write it plainly."""
    return [[plain(one_line(cell)) for cell in row] for row in rows]


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[int]:
    table = [[column.title for column in columns], *rows]
    return [max(len(row[i]) for row in table) for i in range(len(columns))]


def _print_rich(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], title: str | None
) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    widths = _widths(columns, rows)
    for column, width in zip(columns, widths, strict=True):
        table.add_column(
            column.title,
            justify="right" if column.is_right else "left",
            no_wrap=width < max(widths),
            overflow="fold",
        )
    for row in rows:
        # Text, since names of users may hold what rich takes for markup.
        table.add_row(*(Text(cell) for cell in row))
    Console(file=unfiltered(sys.stdout)).print(table)


def _instant(value: object) -> str:
    if isinstance(value, dt.datetime):
        return value.isoformat()
    raise TypeError(f"{value!r} has no JSON form")


@contextmanager
def row_bar(title: str, *, noun: str = "rows") -> Iterator[Callable[[int, int], None]]:
    """Yield a function to call with the rows done and their total: a bar on standard error.

    Without a terminal it prints a line now and then.
    """
    if not sys.stderr.isatty():
        shown_at = time.monotonic()

        def show(done: int, total: int) -> None:
            nonlocal shown_at
            if time.monotonic() - shown_at >= _LINE_EVERY_S:
                shown_at = time.monotonic()
                click.echo(f"{title}: {done} of {total} {noun}", err=True)

        yield show
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as TimeLeft

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=30), MofNCompleteColumn())
    with Progress(*columns, TimeLeft(), console=Console(file=unfiltered(sys.stderr))) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
