"""Reads each cell of the measurement table into base units, or refuses it.

Milliseconds, megabits and percent become seconds, bytes per second and ratios here. An empty cell
and an absent column mean the same: the default, or not known.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from farm.configuration.axes import AXES
from farm.configuration.axis import Axis
from farm.errors import InvalidSpec
from farm.measuring.imported import ImportFlag
from farm.measuring.measurement_table import MEASUREMENT_TABLE, CellKind, ColumnSource, TableColumn
from farm.measuring.noise import NoiseKind
from farm.measuring.quantities import ADVISED, Quantity
from farm.values.fields import Amount, WholeNumber, parse_number

_Read = Callable[[str, str], Any]  # of a cell's text, and what an error calls the cell

_NAME_CHARACTERS = 1000
_VERSIONS_CHARACTERS = 1 << 20  # a gang may have a thousand ranks
_FINGERPRINT_CHARACTERS = 64
_STATUS_CHARACTERS = 32
_MOST_WHOLE = 2**63 - 1
# What others call "ok"; taken as it is, it would be one more reason why there is no time.
_SUCCESSES = frozenset(
    {"success", "successful", "succeeded", "done", "complete", "completed", "finished", "passed"}
    | {"pass", "okay", "good", "valid", "true", "yes", "none", "1", "0"}
)


def name(max_characters: int = _NAME_CHARACTERS) -> Callable[[str, str], str]:
    def read(text: str, where: str) -> str:
        # Not printable: NUL, which PostgreSQL refuses, line breaks, halves of surrogate pairs.
        if not text.isprintable():
            raise InvalidSpec(where, text, "printable characters")
        if len(text) > max_characters:
            raise InvalidSpec(where, text, f"at most {max_characters} characters")
        return text

    return read


def status(text: str, where: str) -> str:
    found = name(_STATUS_CHARACTERS)(text.lower(), where)
    if found in _SUCCESSES:
        raise InvalidSpec(where, text, "ok, or why there is no time, such as out_of_memory")
    return found


def number(text: str, where: str) -> float:
    """Read a finite number; without a range, which belongs to its meaning."""
    found = parse_number(text)
    if found is None or math.isinf(found):
        raise InvalidSpec(
            where, text, f"a number such as 0.25 or 1e-3, or nothing{_advice_on(text)}"
        )
    return found


def decimal(text: str, where: str) -> Decimal:
    """Read a finite number exactly as it is written."""
    number(text, where)
    return Decimal(text)


def _advice_on(text: str) -> str:
    """Say what to do about what spreadsheets make of a number."""
    if parse_number(text) is not None:
        return f" (from {-sys.float_info.max:.3g} to {sys.float_info.max:.3g})"
    if re.fullmatch(r"[+-]?[0-9]{1,3}([., '\u00a0\u202f][0-9]{3})+", text):
        return " (without separators of thousands, and with a decimal point)"
    if re.fullmatch(r"[+-]?[0-9]*,[0-9]+", text):
        return " (with a decimal point)"
    if text.endswith("%"):
        return " (without the sign %: the unit is the column's)"
    if re.match(r"[+-]?[0-9.]+\s*[A-Za-z\u00b5\u03bc]", text):
        return " (without a unit, which is the column's)"
    return ""


def refuse_thousands(text: str, where: str) -> None:
    """Refuse a whole number such as 64.000, which is 64 for some and 64000 for others."""
    if re.fullmatch(r"[1-9][0-9]{0,2}\.[0-9]{3}", text):
        thousands = text.replace(".", "")
        expected = f"a whole number (without a separator of thousands: {thousands})"
        if text.endswith(".000"):
            expected = f"{text.removesuffix('.000')} or {thousands}, whichever is meant"
        raise InvalidSpec(where, text, expected)


def whole(low: int, high: int) -> Callable[[str, str], int]:
    """Read a whole number; 4.0 is one, as programs write it in columns with gaps."""

    def read(text: str, where: str) -> int:
        refuse_thousands(text, where)
        return WholeNumber(low, high).read(number(text, where), where)

    return read


_MOST_FLAGS = 1000


def flags(text: str, where: str) -> tuple[ImportFlag, ...]:
    """Parse the disturbances of a measurement, in the form of an export."""
    expected = 'a list as JSON, such as [{"kind": "foreign_load", "message": "why"}]'
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidSpec(where, text, expected) from None
    if not isinstance(found, list) or len(found) > _MOST_FLAGS:
        raise InvalidSpec(where, text, expected)
    return tuple(_flag(one, where, expected=expected) for one in found)


def _flag(given: object, where: str, *, expected: str) -> ImportFlag:
    if not isinstance(given, dict) or not set(given) <= {"kind", "message", "value"}:
        raise InvalidSpec(where, given, expected)
    kind, message, value = (given.get(key) for key in ("kind", "message", "value"))
    if not isinstance(kind, str) or kind not in _FLAG_KINDS:
        raise InvalidSpec(where, kind, f"one of the kinds {', '.join(_FLAG_KINDS)}")
    if not isinstance(message, str):
        raise InvalidSpec(where, given, expected)
    if value is not None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidSpec(where, value, "a number as the value of a flag, or null")
        value = _FLAG_VALUE.read(value, where)
    return ImportFlag(_FLAG_KINDS[kind], name()(message, where), value)


# Those of values that are not used (`FlagKind`) are for studies, whose importers leave them out.
_FLAG_KINDS: Mapping[str, NoiseKind] = {kind.value: kind for kind in NoiseKind}
_FLAG_VALUE = Amount(unit="", noun="number", low=0, high=1e15)


def _in_range(column: TableColumn) -> _Read:
    """Read what is measured and what an export tells: no number below the least, mostly 0."""
    if column.kind is CellKind.WHOLE:
        return whole(
            math.ceil(column.least), _MOST_WHOLE if column.most is None else int(column.most)
        )

    def read(text: str, where: str) -> float:
        value = number(text, where)
        if value < column.least or (column.most is not None and value > column.most):
            most = "" if column.most is None else f" and at most {column.most:g}"
            raise InvalidSpec(where, text, f"a number of at least {column.least:g}{most}")
        return value

    return read


def _advised(quantity: Quantity) -> _Read:
    """Read what advice is computed from; `misfits` checks what is no whole number."""
    if quantity.is_whole:
        most = _MOST_WHOLE if quantity.most is None else int(quantity.most)
        return whole(int(quantity.least), most)
    return number


def _reader(axis: Axis) -> _Read:
    kind = axis.type
    if isinstance(kind, WholeNumber):
        return whole(kind.low, kind.high)
    if isinstance(kind, Amount):
        return lambda text, where: kind.read(number(text, where), where)
    if not axis.options or axis.is_free_in_imports:
        return name()
    known = {axis.address(value).lower(): value for value in axis.options}
    return lambda text, where: axis.read(known.get(text.lower(), text), where)


# Column: the field it becomes, and how.
CONFIGURATION_COLUMNS: Mapping[str, tuple[str, _Read]] = {
    **{axis.name: (axis.stored, _reader(axis)) for axis in AXES},
    "framework": ("framework", name()),
    "instance_type": ("instance_type", name()),
}
OUTCOME_COLUMNS: Mapping[str, tuple[str, _Read]] = {
    **{quantity.name: (quantity.name, _advised(quantity)) for quantity in ADVISED},
    "status": ("status", status),
    "repetition": ("repetition", whole(0, 2**31 - 1)),
    "fingerprint": ("fingerprint", name(_FINGERPRINT_CHARACTERS)),
    "flags": ("flags", flags),
}
# All other quantities: stored, and nothing that compares or predicts knows of them.
QUANTITY_COLUMNS: Mapping[str, tuple[str, _Read]] = {
    column.name: (column.name, _in_range(column))
    for column in MEASUREMENT_TABLE
    if column.source is ColumnSource.QUANTITY and column.name not in OUTCOME_COLUMNS
}
# What an export says of its job: checked, and kept beside the measurement.
PASSED_ALONG: Mapping[str, tuple[str, _Read]] = {
    column.name: (
        column.name,
        name(_VERSIONS_CHARACTERS) if column.kind is CellKind.TEXT else _in_range(column),
    )
    for column in MEASUREMENT_TABLE
    if not column.is_imported
}


def read_cells(
    cells: Mapping[str, str],
    columns: Mapping[str, tuple[str, _Read]],
    *,
    where: Callable[[str], str],
) -> tuple[dict[str, Any], list[InvalidSpec]]:
    """Parse the cells that are not empty: values by field, and errors.

    `where` names the cell of a column as errors shall.
    """
    values: dict[str, Any] = {}
    refused = []
    for column, (field, read) in columns.items():
        text = cells.get(column, "")
        if not text:
            continue
        try:
            values[field] = read(text, where(column))
        except InvalidSpec as error:
            refused.append(error)
    return values, refused
