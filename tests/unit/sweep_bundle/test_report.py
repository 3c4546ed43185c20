from __future__ import annotations

import dataclasses
from html.parser import HTMLParser

from farm.sweep_bundle.writing import (
    MOST_REPORT_ROWS,
    BundleReport,
    ReportFigure,
    ReportTable,
    report_html,
)

HOSTILE = "<script>alert(1)</script>\"'&\x1b]0;x\x07\u202e\ud800"
PLAIN = BundleReport(title="x", facts=[], answers=[], tables=[], figures=[])


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def _read(report: BundleReport) -> _Tags:
    parser = _Tags()
    parser.feed(report_html(report).encode().decode())  # it can be written as UTF-8
    return parser


def test_nothing_that_anybody_said_becomes_a_tag_or_an_attribute() -> None:
    table = ReportTable(title=HOSTILE, titles=[HOSTILE], rows=[[HOSTILE]], notes=[HOSTILE])
    figure = ReportFigure(title=HOSTILE, summary=HOSTILE, svg=HOSTILE.encode(errors="replace"))
    read = _read(
        BundleReport(
            title=HOSTILE,
            facts=[(HOSTILE, HOSTILE)],
            answers=[HOSTILE],
            tables=[table],
            figures=[figure],
            undrawn=[HOSTILE],
        )
    )
    assert "script" not in read.tags
    names = {"lang", "charset", "http-equiv", "content", "name", "scope", "class", "alt", "src"}
    assert {name for name, _ in read.attributes} == names
    shown = HOSTILE.encode("ascii", "backslashreplace").decode().replace("\x1b", r"\x1b")
    assert shown.replace("\x07", r"\x07") in read.texts


def test_a_report_without_measurements_says_so() -> None:
    texts = _read(dataclasses.replace(PLAIN, tables=[ReportTable(title="t", titles=[], rows=[])]))
    assert "Nothing can be recommended: nothing of this sweep was measured." in texts.texts
    assert "None." in texts.texts


def test_a_long_table_says_how_much_it_leaves_out() -> None:
    rows = [["cell"]] * (MOST_REPORT_ROWS + 7)
    read = _read(
        dataclasses.replace(PLAIN, tables=[ReportTable(title="t", titles=["c"], rows=rows)])
    )
    assert read.texts.count("cell") == MOST_REPORT_ROWS
    assert "7 more rows are in the files beside this page." in read.texts
