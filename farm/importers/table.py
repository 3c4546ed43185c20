"""Reads a user's table of measurements, in the format that `farm export` writes.

It reads the whole table, or refuses it.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from farm.configuration.axes import AXES_WITHOUT_COLUMN
from farm.errors import InvalidSpec
from farm.importers.columns import (
    CONFIGURATION_COLUMNS,
    OUTCOME_COLUMNS,
    PASSED_ALONG,
    QUANTITY_COLUMNS,
    read_cells,
)
from farm.importers.contracts import Reading
from farm.importers.sheet import Sheet, SheetRow, read_sheet
from farm.measuring.imported import UNSAID, ImportedMeasurement, misfits
from farm.measuring.measurement import OK
from farm.text.display import exact_milliseconds
from farm.values.codec import content_hash

COLUMNS = {**CONFIGURATION_COLUMNS, **OUTCOME_COLUMNS, **QUANTITY_COLUMNS}
REQUIRED = ("world_size", "global_batch_size")
_TIMES = ("step_time_s", "time_per_epoch_s")
_THROUGHPUT = "throughput_examples_per_s"
_MOST_RATIO = 2.1  # a little more than 2, for what was rounded
# What the repetitions of a configuration have in common.
_CELL = (*(field for field, _ in CONFIGURATION_COLUMNS.values()), "fingerprint")
_FURTHER = frozenset(axis.stored for axis in AXES_WITHOUT_COLUMN)
_REMARKS = frozenset({"flags", "printed", *QUANTITY_COLUMNS})
_UNSAID: Mapping[str, object] = {**UNSAID, "status": OK}
_OWN = {field.name for field in dataclasses.fields(ImportedMeasurement)}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedTable:
    """A parsed table: its measurements, or all its errors."""

    reading: Reading | None
    refused: tuple[InvalidSpec, ...]


def read_table(content: bytes, *, ignored: Collection[str] = ()) -> Reading:
    """Return one measurement for each row of a CSV file.

    A step time that is not there is the epoch's over its steps, where both are. Rows that are
    alike in everything are repetitions, and stay apart; without a column `repetition` those of a
    configuration are numbered as they come.

    Raises:
        InvalidSpec: what cannot be used, by row and column; the first of all such cells.
    """
    checked = check_table(content, ignored=ignored)
    if checked.reading is None:
        raise _refusal(checked.refused)
    return checked.reading


def check_table(content: bytes, *, ignored: Collection[str] = ()) -> CheckedTable:
    """Do as `read_table` does, but return all errors instead of raising the first.

    Raises:
        InvalidSpec: it is no such table at all, see `read_sheet`.
    """
    sheet = read_sheet(content, known=(*COLUMNS, *PASSED_ALONG), required=REQUIRED, ignored=ignored)
    parsed, refused = [], []
    for row in sheet.rows:
        values, wrong = _values(row)
        parsed.append(values)
        refused += wrong
    if refused:
        return CheckedTable(reading=None, refused=tuple(refused))
    return CheckedTable(reading=_reading(sheet, parsed), refused=())


def _reading(sheet: Sheet, parsed: Sequence[Mapping[str, Any]]) -> Reading:
    numbers: Counter[Hashable] = Counter()
    copies: Counter[str] = Counter()
    measurements = []
    for row, values in zip(sheet.rows, parsed, strict=True):
        cell = tuple(values.get(field, _UNSAID.get(field)) for field in _CELL)
        content_key = _content_key(values)
        own = {field: value for field, value in values.items() if field in _OWN}
        measurements.append(
            ImportedMeasurement(
                **{"repetition": numbers[cell], **own},
                values={field: value for field, value in values.items() if field not in _OWN},
                source_key=content_hash([content_key, copies[content_key]]),
                row_number=row.number,
            )
        )
        numbers[cell] += 1
        copies[content_key] += 1
    return Reading(
        measurements=tuple(measurements),
        row_count=len(sheet.rows),
        conversions=sheet.conversions,
    )


def _content_key(values: Mapping[str, Any]) -> str:
    """Identify a row by its values, not by its text or place.

    The same table in another order, or written by another program, is the same table; and what is
    given as the default is as if it were not there. Flags, what was measured beside the times, and
    what an export says of its job are remarks on a row, and no part of it.
    """
    further = {field: value for field, value in values.items() if field in _FURTHER}
    identity = {
        field: value
        for field, value in values.items()
        if (value != _UNSAID.get(field) or field == "repetition")
        and field not in (*_REMARKS, *further)
    }
    return content_hash({**identity, "axes": further} if further else identity)


def _values(row: SheetRow) -> tuple[dict[str, Any], list[InvalidSpec]]:
    """Return the row's values by field, and its refused cells."""
    values, refused = read_cells(row.cells, COLUMNS, where=row.where)
    values["printed"], wrong = read_cells(row.cells, PASSED_ALONG, where=row.where)
    refused += wrong
    known = {error.field for error in row.refused}
    refused = [*row.refused, *(error for error in refused if error.field not in known)]
    if row.refused:
        return values, refused
    for column in REQUIRED:
        if not row.cells[column]:
            refused.append(InvalidSpec(row.where(column), None, "a value: it is required"))
    for misfit in misfits(values):
        refused.append(InvalidSpec(row.where(misfit.column), misfit.value, misfit.expected))
    if not refused:
        refused += _contradictions(row, values)
    step_count, epoch_s = values.get("steps_per_epoch"), values.get("time_per_epoch_s")
    if not refused and "step_time_s" not in values and step_count and epoch_s:
        values["step_time_s"] = epoch_s / step_count
    return values, refused


def _contradictions(row: SheetRow, values: Mapping[str, Any]) -> list[InvalidSpec]:
    refused = []
    if values.get("status", OK) == OK and not any(name in values for name in _TIMES):
        expected = (
            "a time here or in column time_per_epoch_s, or in column status why there is none, "
            "such as out_of_memory"
        )
        refused.append(InvalidSpec(row.where("step_time_s"), None, expected))
    if values.get("status", OK) != OK:
        expected = f"nothing, since the status is {values['status']}: it says why there is no time"
        for name in _TIMES:
            if name in values:
                refused.append(InvalidSpec(row.where(name), values[name], expected))
    return refused + _unlike_throughput(row, values) + impossible_together(row, values)


def _unlike_throughput(row: SheetRow, values: Mapping[str, Any]) -> list[InvalidSpec]:
    """Refuse a throughput that the step time beside it rules out.

    The throughput follows from the mean of the steps and the other is their median, which cannot be
    more than twice the mean. It can be much less, after a few long steps: an export may say so.
    """
    text, step_time_s = row.cells.get(_THROUGHPUT, ""), values.get("step_time_s")
    if not text or step_time_s is None:
        return []
    likely, given = values["global_batch_size"] / step_time_s, float(text)
    is_too_low = not row.cells.get("job_id") and given * _MOST_RATIO < likely
    if given <= likely * _MOST_RATIO and not is_too_low:
        return []
    expected = f"about global_batch_size / step_time_s, {likely:.4g}, at most {_MOST_RATIO:g} times"
    return [InvalidSpec(row.where(_THROUGHPUT), given, expected)]


def impossible_together(row: SheetRow, values: Mapping[str, Any]) -> list[InvalidSpec]:
    """Return what of a row's configuration cannot be beside another value of it."""
    refused = []
    delay_s, jitter_s = (values.get(name, 0.0) for name in ("one_way_delay_s", "jitter_s"))
    if jitter_s > delay_s:
        expected = f"at most one_way_delay_ms, {exact_milliseconds(delay_s)}"
        given = float(row.cells["jitter_ms"])
        refused.append(InvalidSpec(row.where("jitter_ms"), given, expected))
    if values["global_batch_size"] < values["world_size"]:
        expected = f"at least one example for each of {values['world_size']} replicas"
        refused.append(
            InvalidSpec(row.where("global_batch_size"), values["global_batch_size"], expected)
        )
    return refused


def _refusal(refused: Sequence[InvalidSpec]) -> InvalidSpec:
    """Return the first, which says how many there are."""
    first = refused[0]
    if len(refused) == 1:
        return first
    field = f"{first.field} (the first of {len(refused)} such cells)"
    return InvalidSpec(field, first.value, first.expected)
