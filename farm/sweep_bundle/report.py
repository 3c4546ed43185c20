"""The report of a sweep bundle: a page that opens from disk.

It has no script and loads nothing, and its content security policy says so. All text is escaped,
since agents, trainers and submitters of sweeps supply much of it.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader

from farm.text.log_text import printable

MOST_ROWS = 1000  # of a table; the files have all


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportTable:
    """`rows`: a text for each of the titles. `notes`: lines below it."""

    title: str
    titles: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFigure:
    title: str
    summary: str
    svg: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleReport:
    """`facts`: what it is of, each with its name. `answers`: what is recommended, in sentences."""

    title: str
    facts: Sequence[tuple[str, str]]
    answers: Sequence[str]
    tables: Sequence[ReportTable]
    figures: Sequence[ReportFigure]
    undrawn: Sequence[str] = ()


def report_html(report: BundleReport) -> str:
    """Return the page."""
    environment = Environment(
        loader=PackageLoader("farm.sweep_bundle"),
        autoescape=True,
        trim_blocks=True,
        keep_trailing_newline=True,
        finalize=lambda value: printable(value) if isinstance(value, str) else value,
    )
    environment.filters["base64"] = lambda svg: base64.b64encode(svg).decode()
    return environment.get_template("report.html").render(report=report, most_rows=MOST_ROWS)
