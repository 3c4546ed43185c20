"""Stores a study's measurements in a CSV file, from which its page is made.

The columns are those of `StudyRun`, in base units. What was not measured is an empty cell.
"""

from __future__ import annotations

import csv
import dataclasses
import datetime as dt
import io
from collections.abc import Callable, Sequence
from typing import Any, get_type_hints

from farm.errors import InvalidSpec
from farm.measuring.study_run import StudyRun

_COLUMNS = tuple(field.name for field in dataclasses.fields(StudyRun))
# Those that every file has; the others, which follow, are absent from older ones.
_REQUIRED_COUNT = sum(
    field.default is dataclasses.MISSING for field in dataclasses.fields(StudyRun)
)
_HINTS = get_type_hints(StudyRun)


def write_runs(runs: Sequence[StudyRun]) -> str:
    """Return the file's text; `read_runs` makes equal runs of it."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    writer.writerows([_write(getattr(run, name)) for name in _COLUMNS] for run in runs)
    return text.getvalue()


def read_runs(text: str, *, name: str) -> list[StudyRun]:
    """Read a file's text; `name` is how errors call it.

    Raises:
        InvalidSpec: it is not such a file; names line and column.
    """
    reader = csv.DictReader(io.StringIO(text), strict=True)
    try:
        rows = list(reader)
    except csv.Error as error:
        raise InvalidSpec(f"{name} line {reader.line_num}", str(error), "CSV") from None
    columns = tuple(reader.fieldnames or ())
    if columns != _COLUMNS[: len(columns)] or len(columns) < _REQUIRED_COUNT:
        found = ",".join(reader.fieldnames or ())
        raise InvalidSpec(f"{name} line 1", found, f"the columns {','.join(_COLUMNS)}")
    return [_run(row, where=f"{name} line {line}") for line, row in enumerate(rows, start=2)]


def _run(row: dict[str, Any], *, where: str) -> StudyRun:
    if None in row or None in row.values():
        cells = sum(text is not None for text in row.values())
        raise InvalidSpec(where, f"{cells} cells", f"{len(row.keys() - {None})} cells")
    values = {}
    for column in row:
        text, (what, parse) = row[column], _PARSERS[_HINTS[column]]
        try:
            values[column] = parse(text)
        except (ValueError, TypeError):
            raise InvalidSpec(f"{where} {column}", text, what) from None
    return StudyRun(**values)


def _write(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, dt.datetime):
        return value.isoformat()
    return " ".join(value) if isinstance(value, tuple) else str(value)


def _instant(text: str) -> dt.datetime:
    instant = dt.datetime.fromisoformat(text)
    if instant.tzinfo is None:
        raise ValueError(text)
    return instant


def _number(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise ValueError(text)
    return value


def _or_none(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda text: parse(text) if text != "" else None


# By the column's type: what is expected, in words, and how it is read.
_PARSERS: dict[Any, tuple[str, Callable[[str], Any]]] = {
    int: ("a whole number", int),
    float: ("a number, 0 or more", _number),
    str: ("a text", str),
    dt.datetime: ("an instant with its time zone", _instant),
    tuple[str, ...]: ("names with spaces between", lambda text: tuple(text.split())),
    int | None: ("a whole number or nothing", _or_none(int)),
    float | None: ("a number, 0 or more, or nothing", _or_none(_number)),
    str | None: ("a text or nothing", _or_none(str)),
}
