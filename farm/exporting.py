"""Writes the measurements and samples of a sweep to a file, for `farm export` and the pages.

It writes in parts, so a sweep of a hundred thousand jobs is never in memory as a whole.
"""

from __future__ import annotations

import csv
import enum
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import IO, TYPE_CHECKING

from sqlalchemy.orm import Session

from farm.errors import FarmError
from farm.measuring.measurement_table import FLAG_FIELDS, MEASUREMENT_TABLE, CellKind
from farm.store.measurements.export_parts import export_parts, origin_parts
from farm.store.series.samples import (
    SAMPLE_COLUMNS,
    WHOLE_COLUMNS,
    origin_samples,
    sweep_sample_pages,
)
from farm.text.formulas import without_formula

if TYPE_CHECKING:
    import pyarrow

_Rows = Sequence[Mapping[str, object]]
SAMPLES_A_PART = 20_000


class Form(enum.Enum):
    """The kinds of file there are; the values are their endings."""

    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"

    @property
    def media_type(self) -> str:
        """What such a file is called in HTTP."""
        return _MEDIA_TYPES[self]


_MEDIA_TYPES = {
    Form.CSV: "text/csv",
    Form.JSON: "application/json",
    Form.PARQUET: "application/vnd.apache.parquet",
}


Columns = Mapping[str, CellKind]
_Parts = Iterable[_Rows]

MEASUREMENTS: Columns = {column.name: column.kind for column in MEASUREMENT_TABLE}
# `extra`: the text of a JSON object of further metrics.
SAMPLES: Columns = {
    "job_id": CellKind.WHOLE,
    "attempt_id": CellKind.WHOLE,
    **{
        name: CellKind.WHOLE if name in WHOLE_COLUMNS else CellKind.NUMBER
        for name in SAMPLE_COLUMNS
    },
    "extra": CellKind.TEXT,
}


def write_export(session: Session, sweep_id: int, form: Form, file: IO[bytes]) -> int:
    """Write a row for each measurement of the sweep, by job; return how many.

    The columns are those of `farm.measuring.measurement_table`, with the unit in the name.

    Raises:
        FarmError: Parquet needs a library that is not installed.
    """
    return write_rows(MEASUREMENTS, export_parts(session, sweep_id), form, file)


def write_origin(session: Session, origin: str, form: Form, file: IO[bytes]) -> int:
    """Write a row for each measurement of an imported origin, as `write_export` does for a sweep.

    Raises:
        NotFound: there are none.
        FarmError: Parquet needs a library that is not installed.
    """
    return write_rows(MEASUREMENTS, origin_parts(session, origin), form, file)


def write_samples(session: Session, sweep_id: int, form: Form, file: IO[bytes]) -> int:
    """Write a row for each sample of the sweep, by attempt, rank and tick; return how many.

    All attempts have theirs, those that failed too. `span_ticks` is above 1 where a row is the mean
    of so many seconds.

    Raises:
        FarmError: Parquet needs a library that is not installed.
    """
    return write_rows(SAMPLES, _sample_parts(session, sweep_id), form, file)


def write_origin_samples(session: Session, origin: str, form: Form, file: IO[bytes]) -> int:
    """Write the samples of an imported origin, as `write_samples` does those of a sweep."""
    return write_rows(SAMPLES, origin_samples(session, origin, most=SAMPLES_A_PART), form, file)


def _sample_parts(session: Session, sweep_id: int) -> Iterator[_Rows]:
    for attempt, page in sweep_sample_pages(session, sweep_id, most=SAMPLES_A_PART):
        known = {"job_id": attempt.job_id, "attempt_id": attempt.id}
        rows = zip(*page.columns, strict=True)
        yield [{**known, **dict(zip(SAMPLE_COLUMNS, row, strict=True))} for row in rows]


def write_rows(columns: Columns, parts: _Parts, form: Form, file: IO[bytes]) -> int:
    """Write a table, whose rows have a value for each column; return how many rows.

    In CSV a list is written as JSON, and a text that a spreadsheet would run as a formula has an
    apostrophe before it.

    Raises:
        FarmError: Parquet needs a library that is not installed.
    """
    return _WRITERS[form](columns, parts, file)


def _write_csv(columns: Columns, parts: _Parts, file: IO[bytes]) -> int:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
    writer = csv.DictWriter(text, list(columns), lineterminator="\n")
    writer.writeheader()
    count = 0
    for rows in parts:
        writer.writerows({name: _harmless(value) for name, value in row.items()} for row in rows)
        count += len(rows)
    text.flush()
    text.detach()  # or the file would be closed with it
    return count


def _harmless(value: object) -> object:
    if isinstance(value, list | bool):
        return json.dumps(value, allow_nan=False)
    return without_formula(value) if isinstance(value, str) else value


def _write_json(columns: Columns, parts: _Parts, file: IO[bytes]) -> int:
    count = 0
    for row in chain.from_iterable(parts):
        text = json.dumps(row, indent=2, allow_nan=False).replace("\n", "\n  ")
        file.write(f"{',' if count else '['}\n  {text}".encode())
        count += 1
    file.write(b"\n]\n" if count else b"[]\n")
    return count


def _write_parquet(columns: Columns, parts: _Parts, file: IO[bytes]) -> int:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise FarmError("Parquet needs pyarrow: pip install pyarrow, or use --format csv") from None
    schema = parquet_schema(columns)
    count = 0
    with parquet.ParquetWriter(file, schema) as writer:
        for rows in parts:
            writer.write_table(pyarrow.Table.from_pylist(list(rows), schema=schema))
            count += len(rows)
    return count


def parquet_schema(columns: Columns) -> pyarrow.Schema:
    """Return the column types of a table, also for columns without values."""
    import pyarrow

    texts = [(name, pyarrow.string()) for name in FLAG_FIELDS if name != "value"]
    flag = pyarrow.struct([*texts, ("value", pyarrow.float64())])
    kinds = {
        CellKind.TEXT: pyarrow.string(),
        CellKind.BOOLEAN: pyarrow.bool_(),
        CellKind.WHOLE: pyarrow.int64(),
        CellKind.NUMBER: pyarrow.float64(),
        CellKind.FLAGS: pyarrow.list_(flag),
    }
    return pyarrow.schema([(name, kinds[kind]) for name, kind in columns.items()])


_WRITERS: dict[Form, Callable[[Columns, _Parts, IO[bytes]], int]] = {
    Form.CSV: _write_csv,
    Form.JSON: _write_json,
    Form.PARQUET: _write_parquet,
}
