"""Converts lists of JSON objects and Arrow tables to pandas, polars or pyarrow tables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import pyarrow

from benchfarm.client.errors import ClientError

Library = Literal["pandas", "polars", "pyarrow"]
_LIBRARIES = ("pandas", "polars", "pyarrow")
# The ends of names of numbers that have a unit.
_UNITS = ("_s", "_bytes", "_per_step", "_ratio", "_usd", "_j")


def frame_of(rows: Sequence[Mapping[str, Any]], library: Library) -> Any:
    """Return a frame with a row for each object and a column for each key, in their order.

    What holds objects or lists of these is written as JSON. A number with a unit in its name is
    float64 where no row knows it.
    """
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: [_cell(row.get(name)) for row in rows] for name in names}
    return as_frame(
        pyarrow.table({_utf8(name): _array(name, values) for name, values in columns.items()}),
        library,
    )


def as_frame(table: pyarrow.Table, library: Library) -> Any:
    """Return an Arrow table as a frame of that library."""
    if library not in _LIBRARIES:
        raise ClientError(f"library={library!r}: expected one of {', '.join(_LIBRARIES)}")
    if library == "pyarrow":
        return table
    try:
        if library == "pandas":
            return table.to_pandas()
        import polars
    except ImportError as error:
        raise ClientError(f"{library} is not installed: pip install {library} ({error})") from None
    return polars.from_arrow(table)


def with_extras(batches: Iterable[pyarrow.RecordBatch]) -> pyarrow.Table:
    """Return one table, in which every key of the JSON in `extra` has become a column."""
    whole = pyarrow.Table.from_batches(batches)
    texts = whole.column("extra").to_pylist()
    extras = [json.loads(text) if text else {} for text in texts]
    table = whole.drop_columns(["extra"])
    for name in dict.fromkeys(name for extra in extras for name in extra):
        if name not in table.column_names:
            values = [extra.get(name) for extra in extras]
            table = table.append_column(name, pyarrow.array(values, type=pyarrow.float64()))
    return table


def _cell(value: Any) -> Any:
    is_nested = isinstance(value, Mapping) or (
        isinstance(value, list) and any(isinstance(each, Mapping | list) for each in value)
    )
    return json.dumps(value) if is_nested else value


def _array(name: str, values: list[Any]) -> pyarrow.Array:
    if name.endswith(_UNITS) and all(value is None for value in values):
        # Or whether one can calculate with a column would depend on what is known.
        return pyarrow.array(values, type=pyarrow.float64())
    # Arrow has no type for whole numbers of more than 64 bits, for one column of several types, or
    # for half a character, which JSON may have.
    try:
        return pyarrow.array(values)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, OverflowError, UnicodeEncodeError):
        pass
    if all(value is None or isinstance(value, int | float) for value in values):
        try:
            return pyarrow.array([None if value is None else float(value) for value in values])
        except OverflowError:
            pass
    return pyarrow.array([None if value is None else _utf8(str(value)) for value in values])


def _utf8(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()
