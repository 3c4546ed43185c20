"""`farm predict`: the step times of a file's configurations, measured or not."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from farm.cli.advice.questions import (
    origin_option,
    recommender_cache,
    requested_script,
    script_options,
)
from farm.cli.output import json_option, print_json, to_stderr
from farm.cli.session import settings, store
from farm.errors import InvalidSpec
from farm.importers.columns import (
    CONFIGURATION_COLUMNS,
    OUTCOME_COLUMNS,
    PASSED_ALONG,
    QUANTITY_COLUMNS,
    read_cells,
)
from farm.importers.headers import column_of, hint_of
from farm.importers.sheet import MAX_SHEET_BYTES, lines_of, read_sheet
from farm.importers.table import REQUIRED, impossible_together
from farm.processes.standard_output import print_data
from farm.processes.whole_file import write_whole
from farm.recommend.contracts import Prediction
from farm.recommend.predictions import FINGERPRINT, predict_queries
from farm.store.engine import reading

RESULT_COLUMNS = (
    *("step_time_s", "low_s", "high_s", "low80_s", "high80_s", "basis"),
    "speculative_because",
)
_COLUMNS = {**CONFIGURATION_COLUMNS, FINGERPRINT: OUTCOME_COLUMNS[FINGERPRINT]}
# Known, and not mistaken for others.
_RESULTS = {*OUTCOME_COLUMNS, *QUANTITY_COLUMNS, *PASSED_ALONG, *RESULT_COLUMNS}


@dataclass(frozen=True, slots=True)
class _Queries:
    """The table as it came, and what each row asks, by the fields of a configuration."""

    header: list[str]
    rows: list[list[str]]
    questions: list[dict[str, Any]]


@click.command()
@click.argument("queries", metavar="QUERIES.csv", type=click.Path(path_type=Path))
@origin_option
@script_options
@click.option(
    "--out", type=click.Path(path_type=Path), help="Output file; standard output by default."
)
@json_option
def predict(queries: Path, *, origin: str, out: Path | None, as_json: bool, **script: Any) -> None:
    """Predict the time of one step for each row of a CSV file, and write one row for each.

    QUERIES.csv may be - for standard input. The columns are those of the measurement table, such as
    world_size and global_batch_size, which are required, strategy or one_way_delay_ms; other
    columns are kept but not used, and a step_time_s becomes given_step_time_s. A missing column or
    cell takes the common value of the origin's measurements, or --script. Rows keep their order and
    columns, and get step_time_s, low_s and high_s (90 %), low80_s, high80_s and basis: measured,
    interpolated, extrapolated, or unknown and why. speculative_because says which predictions are
    guesses, far from anything measured. --json prints items instead.
    """
    table = _read(queries)
    if unused := _unused(table.header):
        to_stderr(f"kept but not used: {', '.join(unused)}")
    loaded = settings()
    with store(loaded) as engine, reading(engine) as session:
        rows, of_script = table.questions, requested_script(session, origin=origin, **script)
        if of_script is not None:
            known = {"model": of_script.model, "dataset": of_script.dataset}
            rows = [{**known, **row} if "model" not in row else row for row in rows]
        answered = predict_queries(session, rows, origin=origin, cache=recommender_cache(loaded))
    predictions = [answer.prediction for answer in answered]
    if as_json:
        print_json({"items": _items(table, predictions)})
        return
    content = _table(table, predictions)
    if out is None:
        print_data(content)
        return
    write_whole(out, content.encode())
    click.echo(f"{len(predictions)} predictions written to {out}", err=True)


def _read(path: Path) -> _Queries:
    """Read and check the whole file before anything is predicted.

    Raises:
        InvalidSpec: it cannot be read, or a cell does not fit: names row and column.
    """
    try:
        with click.open_file(str(path), "rb") as file:
            content: bytes = file.read(MAX_SHEET_BYTES + 1)
    except OSError as error:
        expected = f"a readable file ({error.strerror or error})"
        raise InvalidSpec("QUERIES.csv", str(path), expected) from None
    header = _header(content)
    others = [name for name in header if not column_of(name, _COLUMNS)]
    sheet = read_sheet(content, known=tuple(_COLUMNS), required=REQUIRED, ignored=others)
    for conversion in sheet.conversions:
        to_stderr(f"converted: {conversion}")
    questions = []
    for row in sheet.rows:
        values, refused = read_cells(row.cells, _COLUMNS, where=row.where)
        refused = [*row.refused, *refused]
        for column in REQUIRED:
            if not row.cells[column]:
                refused.append(InvalidSpec(row.where(column), None, "a value: it is required"))
        if refused := refused or impossible_together(row, values):
            raise refused[0]
        questions.append(values)
    _, *rows = _lines(content)
    assert len(rows) == len(questions)
    return _Queries(header=header, rows=rows, questions=questions)


def _unused(header: Sequence[str]) -> list[str]:
    """Return the columns that ask nothing, with what may have been meant by them."""
    return [
        (name.strip() or f"column {i}") + _hint(name)
        for i, name in enumerate(header, start=1)
        if not column_of(name, _COLUMNS)
    ]


def _hint(name: str) -> str:
    """Return ` (what to do)` for a column that may be meant to ask something, else nothing."""
    hint = None if name.strip().lower() in _RESULTS else hint_of(name, tuple(_COLUMNS))
    return f" ({hint})" if hint and not any(result in hint for result in OUTCOME_COLUMNS) else ""


def _header(content: bytes) -> list[str]:
    try:
        return next(_lines(content), [])
    except (UnicodeDecodeError, InvalidSpec):
        return []  # the reader of sheets says what is wrong, and where


def _lines(content: bytes) -> Iterator[list[str]]:
    """Yield the rows that are not empty, as they came."""
    return (cells for _, cells in lines_of(content.decode("utf-8-sig")))


def _results(prediction: Prediction) -> list[float | str | None]:
    basis = prediction.basis.value
    if prediction.unknown_because is not None:
        basis = f"{basis}: {prediction.unknown_because}"
    return [
        prediction.step_time_s,
        prediction.low_s,
        prediction.high_s,
        prediction.low80_s,
        prediction.high80_s,
        basis,
        prediction.speculative_because,
    ]


def _kept(header: Sequence[str]) -> list[str]:
    """Return what the columns of the file are called in the results, which have each name once."""
    return [f"given_{name}" if name in RESULT_COLUMNS else name for name in header]


def _table(table: _Queries, predictions: Sequence[Prediction]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*_kept(table.header), *RESULT_COLUMNS])
    for row, prediction in zip(table.rows, predictions, strict=True):
        writer.writerow([*row, *_results(prediction)])
    return text.getvalue()


def _items(table: _Queries, predictions: Sequence[Prediction]) -> list[dict[str, object]]:
    return [
        {
            **dict(zip(_kept(table.header), row, strict=True)),
            **dict(zip(RESULT_COLUMNS, _results(prediction), strict=True)),
            "measurement_ids": prediction.measurement_ids,
        }
        for row, prediction in zip(table.rows, predictions, strict=True)
    ]
