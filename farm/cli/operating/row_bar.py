"""A progress bar for long database operations; without a terminal, a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from farm.processes.standard_output import unfiltered

_LINE_EVERY_S = 5.0


@contextmanager
def row_bar(title: str, *, noun: str = "rows") -> Iterator[Callable[[int, int], None]]:
    """Yield a function to call with the rows done and their total; all goes to standard error."""
    if not sys.stderr.isatty():
        yield _lines(title, noun)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as TimeLeft

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=30), MofNCompleteColumn())
    with Progress(*columns, TimeLeft(), console=Console(file=unfiltered(sys.stderr))) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def _lines(title: str, noun: str) -> Callable[[int, int], None]:
    shown_at = time.monotonic()

    def show(done: int, total: int) -> None:
        nonlocal shown_at
        if time.monotonic() - shown_at >= _LINE_EVERY_S:
            shown_at = time.monotonic()
            click.echo(f"{title}: {done} of {total} {noun}", err=True)

    return show
