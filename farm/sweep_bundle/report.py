"""The report of a sweep bundle: a page that opens from disk. Pure.

It has no script and loads nothing, and its content security policy says so. All text is escaped,
since agents, trainers and submitters of sweeps supply much of it.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from farm.text.log_text import printable

MOST_ROWS = 1000  # of a table; the files have all
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1b1b1b; background: #fff; max-width: 72rem;
  margin: 2rem auto; padding: 0 1rem; overflow-wrap: anywhere }
table { border-collapse: collapse; font-size: 0.875rem; overflow-wrap: normal }
th, td { text-align: left; vertical-align: top; padding: 0.2rem 0.8rem 0.2rem 0;
  border-bottom: 1px solid #ccc }
.scroll { overflow-x: auto }
img { max-width: 100%; height: auto }
figure { margin: 1rem 0 }
"""


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
    facts = [
        f"<tr><th scope='row'>{_text(k)}</th><td>{_text(v)}</td></tr>" for k, v in report.facts
    ]
    answers = report.answers or ["Nothing can be recommended: nothing of this sweep was measured."]
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{_text(report.title)} - Benchfarm</title>",
            f"<style>{_STYLE}</style></head><body><main>",
            f"<h1>{_text(report.title)}</h1>",
            f"<div class='scroll'><table>{''.join(facts)}</table></div>",
            "<h2>Answer</h2>",
            *_paragraphs(answers),
            *(line for table in report.tables for line in _table(table)),
            "<h2>Figures</h2>",
            *(line for figure in report.figures for line in _figure(figure)),
            *_paragraphs(report.undrawn),
            "</main></body></html>\n",
        ]
    )


def _table(table: ReportTable) -> Iterable[str]:
    yield f"<h2>{_text(table.title)}</h2>"
    if table.rows:
        titles = "".join(f"<th scope='col'>{_text(title)}</th>" for title in table.titles)
        yield f"<div class='scroll'><table><thead><tr>{titles}</tr></thead><tbody>"
        for row in table.rows[:MOST_ROWS]:
            yield f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>"
        yield "</tbody></table></div>"
    else:
        yield "<p>None.</p>"
    yield from _paragraphs(table.notes)
    if (left_out := len(table.rows) - MOST_ROWS) > 0:
        yield f"<p>{left_out} more rows are in the files beside this page.</p>"


def _figure(figure: ReportFigure) -> Iterable[str]:
    # As an image, a drawing can neither run nor load anything.
    source = base64.b64encode(figure.svg).decode()
    title, summary = _text(figure.title), _text(figure.summary)
    yield f"<h3>{title}</h3>"
    yield f'<figure><img alt="{title}: {summary}" src="data:image/svg+xml;base64,{source}">'
    yield f"<figcaption>{summary}</figcaption></figure>"


def _paragraphs(texts: Iterable[str]) -> list[str]:
    return [f"<p>{_text(text)}</p>" for text in texts]


def _text(text: str) -> str:
    return html.escape(printable(text))
