"""The table that every benchmark prints: our figure, a baseline, their ratio, a limit.

A benchmark is a module of this package whose docstring says what it measures. It hands a function
that returns figures to `run_benchmark`, which knows the options that all of them share:

    if __name__ == "__main__":
        sys.exit(run_benchmark(__doc__, measure, options=add_options))
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType

import psutil

from farm.embedded.signals import Stopped
from farm.errors import FarmError
from farm.text import display

# Above this share of the processors' time somebody else is at work, and no clock can be trusted.
_QUIET_BUSY_RATIO = 0.1
# The load average would be shorter to read, but holds the benchmark before for minutes.
_LOOK_S = 1.0
# What shells say of a program that Ctrl-C ended.
STOPPED_STATUS = 130
_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkFigure:
    """One line of the table.

    `ours` and `baseline` are in `unit`, a base unit such as "s", "rows/s" or "bytes"; None where
    there is no such figure. `ratio` is ours to the baseline, by default of the two numbers; where
    it is better founded than that (a median of pairs), it is given. `against` says what the
    baseline is, `limit` what was to be reached, as a reader would write it, and `reached` whether
    it was; None where nothing was asked.
    """

    name: str
    unit: str
    ours: float | None
    baseline: float | None
    against: str
    ratio: float | None = None
    limit: str = ""
    reached: bool | None = None
    note: str = ""

    def __post_init__(self) -> None:
        if self.ratio is None and self.ours is not None and self.baseline:
            object.__setattr__(self, "ratio", self.ours / self.baseline)


def new_parser(
    doc: str | None, options: Callable[[argparse.ArgumentParser], None] | None
) -> argparse.ArgumentParser:
    """Return what reads a benchmark's command line: the options of all, and those of its own."""
    spec = sys.modules["__main__"].__spec__
    parser = argparse.ArgumentParser(
        prog=f"python -m {spec.name}" if spec else None,
        description=doc,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--quick", action="store_true", help="a short run, held to no limit")
    if options is not None:
        options(parser)
    return parser


def run_benchmark(
    doc: str | None,
    measure: Callable[[argparse.Namespace], Sequence[BenchmarkFigure]],
    *,
    options: Callable[[argparse.ArgumentParser], None] | None = None,
    argv: Sequence[str] | None = None,
) -> int:
    """Measure, print, and return the exit status: 1 if a limit was missed, or nothing measured.

    Ctrl-C and SIGTERM end what was started and return 130.

    Every benchmark has `--json` and `--quick`. A quick run shows that the benchmark works; it is
    too short to be held to a limit. What is said on the way goes to standard error.
    """
    given = new_parser(doc, options).parse_args(argv)
    # Images of containers ask for this, and whoever has it in a shell: every process of every farm
    # that is measured would compile the farm anew.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if not given.quick:
        warn_if_loaded()
    try:
        with stopping_once():
            figures = list(measure(given))
    except (KeyboardInterrupt, Stopped):
        say("stopped")
        return STOPPED_STATUS
    except FarmError as error:
        print(f"benchmark failed: {error}", file=sys.stderr)
        return 1
    if given.quick:
        figures = [dataclasses.replace(figure, reached=None) for figure in figures]
    print_figures(figures, as_json=given.json)
    return int(not figures or any(figure.reached is False for figure in figures))


@contextmanager
def stopping_once() -> Iterator[None]:
    """Raise KeyboardInterrupt at the first SIGINT, SIGTERM or SIGHUP, and let no other disturb it.

    Whoever started processes then ends them on the way out, which a second one would cut short.
    """
    # Whoever started us with nohup wants to outlive the terminal.
    caught = [number for number in _STOPS if signal.getsignal(number) != signal.SIG_IGN]

    def stop(number: int, frame: FrameType | None) -> None:
        for other in caught:
            signal.signal(other, signal.SIG_IGN)
        raise KeyboardInterrupt

    previous = {number: signal.signal(number, stop) for number in caught}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def at_least(least: int) -> Callable[[str], int]:
    """Return how an option reads a whole number that is not too small."""

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least:
            raise argparse.ArgumentTypeError(
                f"expected a whole number of at least {least}, got {text!r}"
            )
        return number

    return read


def warn_if_loaded() -> None:
    """Say so on standard error if the machine is busy before the benchmark begins."""
    busy_ratio = psutil.cpu_percent(interval=_LOOK_S) / 100
    if busy_ratio > _QUIET_BUSY_RATIO:
        print(
            f"warning: {busy_ratio:.0%} of the processors' time is taken: something else is at "
            "work, so do not trust these figures",
            file=sys.stderr,
        )


def say(text: str) -> None:
    """Tell how far a benchmark is, on standard error."""
    print(text, file=sys.stderr, flush=True)


def print_figures(figures: Sequence[BenchmarkFigure], *, as_json: bool) -> None:
    """Print figures to standard output."""
    if as_json:
        print(json.dumps([asdict(figure) for figure in figures], indent=1))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("", "ours", "baseline", "ratio", "limit", "reached", show_edge=False)
    for figure in figures:
        cells = cells_of(figure)
        table.add_row(cells[0], cells[1], f"{cells[2]} ({figure.against})", *cells[4:])
    # Piped into a file, a line is as wide as it needs to be.
    console = Console(soft_wrap=not sys.stdout.isatty())
    console.print(table)
    for figure in figures:
        if figure.note:
            console.print(f"{figure.name}: {figure.note}", markup=False, highlight=False)


def cells_of(figure: BenchmarkFigure) -> list[str]:
    """Return name, ours, baseline, what that is, ratio, limit and whether it was reached."""
    return [
        figure.name,
        shown(figure.ours, figure.unit),
        shown(figure.baseline, figure.unit),
        figure.against,
        "-" if figure.ratio is None else f"{figure.ratio:.3g}",
        figure.limit or "-",
        {True: "yes", False: "NO", None: "-"}[figure.reached],
    ]


def shown(value: float | None, unit: str) -> str:
    """Write a figure in the multiple of its unit that people read."""
    if value is None:
        return "-"
    if unit == "s":
        return display.duration(value)
    if unit == "bytes":
        return display.byte_count(value)
    if unit == "ratio":
        return f"{value * 100:.3g} %"
    if abs(value) >= 1000:
        return f"{value:,.0f} {unit}".strip()
    return f"{value:.3g} {unit}".strip()


def root() -> Path:
    """Return the folder that holds the package, where benchmarks run."""
    return Path(__file__).resolve().parents[1]
