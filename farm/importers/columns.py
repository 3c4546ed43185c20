"""The columns of the measurement table: how each cell is read into base units, or refused.

Here milliseconds, megabits and percent become seconds, bytes per second and ratios. An empty cell
and a column that is not there say the same: the default, or that nothing is known.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, TypeVar

from farm.core import fields
from farm.core.imported import FlagKind, ImportFlag
from farm.core.measurement_table import MEASUREMENT_TABLE, CellKind, TableColumn
from farm.core.noise import NoiseKind
from farm.core.spec import (
    MAX_GLOBAL_BATCH_SIZE,
    MAX_REPLICAS_PER_RANK,
    MAX_STEPS,
    MAX_WORLD_SIZE,
    BatchSplit,
    ServerPlacement,
    TrainingPass,
)
from farm.errors import InvalidSpec

_T = TypeVar("_T")
_Read = Callable[[str, str], Any]  # of a cell's text, and what an error calls the cell

_NAME_CHARACTERS = 1000
_FINGERPRINT_CHARACTERS = 64
_STATUS_CHARACTERS = 32
_MOST_WHOLE = 2**63 - 1
# What others call "ok"; taken as it is, it would be one more reason why there is no time.
_SUCCESSES = frozenset(
    {"success", "successful", "succeeded", "done", "complete", "completed", "finished", "passed"}
    | {"pass", "okay", "good", "valid", "true", "yes", "none", "1", "0"}
)
# Python itself would take 1_000, other alphabets' digits, nan and inf.
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")


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
    if not _NUMBER.fullmatch(text) or float(text) in (float("inf"), float("-inf")):
        raise InvalidSpec(
            where, text, f"a number such as 0.25 or 1e-3, or nothing{_advice_on(text)}"
        )
    return float(text)


def decimal(text: str, where: str) -> Decimal:
    """Read a finite number exactly as it is written."""
    number(text, where)
    return Decimal(text)


def _advice_on(text: str) -> str:
    """Say what to do about what spreadsheets make of a number."""
    if re.fullmatch(r"[+-]?[0-9]{1,3}([., '\u00a0\u202f][0-9]{3})+", text):
        return " (without separators of thousands, and with a decimal point)"
    if re.fullmatch(r"[+-]?[0-9]*,[0-9]+", text):
        return " (with a decimal point)"
    if text.endswith("%"):
        return " (without the sign %: the unit is the column's)"
    if re.match(r"[+-]?[0-9.]+\s*[A-Za-z\u00b5\u03bc]", text):
        return " (without a unit, which is the column's)"
    return ""


def whole(low: int, high: int) -> Callable[[str, str], int]:
    """Read a whole number; 4.0 is one, as programs write it in columns with gaps."""
    read_whole = fields.whole(low, high)

    def read(text: str, where: str) -> int:
        value = number(text, where)
        return read_whole(int(value) if value.is_integer() else value, where)

    return read


def _in_unit(read: Callable[[object, str], _T]) -> Callable[[str, str], _T]:
    return lambda text, where: read(number(text, where), where)


def _one_of(kind: type[enum.Enum]) -> Callable[[str, str], str]:
    """Read one of the values of an enumeration, as the text it is stored as."""
    read = fields.choice(kind)
    return lambda text, where: str(read(text.lower(), where).value)


_read_pass = fields.choice(TrainingPass)
_MOST_FLAGS = 1000


def flags(text: str, where: str) -> tuple[ImportFlag, ...]:
    """Read what disturbed a measurement, as an export tells it."""
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
        value = number(str(value), where)
    return ImportFlag(_FLAG_KINDS[kind], name()(message, where), value)


_FLAG_KINDS: Mapping[str, NoiseKind | FlagKind] = {
    kind.value: kind for kind in (*NoiseKind, *FlagKind)
}


def passed_along(column: TableColumn) -> Callable[[str, str], Any]:
    """Read what an export tells and nothing here compares: no number below 0."""
    if column.kind is CellKind.WHOLE:
        return whole(0, _MOST_WHOLE)

    def read(text: str, where: str) -> float:
        value = number(text, where)
        if value < 0 or (column.most is not None and value > column.most):
            most = "" if column.most is None else f" and at most {column.most:g}"
            raise InvalidSpec(where, text, f"a number of at least 0{most}")
        return value

    return read


# Column: the field it becomes, and how. What is measured has its ranges in farm.core.imported.
CONFIGURATION: Mapping[str, tuple[str, _Read]] = {
    "model": ("model", name()),
    "dataset": ("dataset", name()),
    "pass": ("training_pass", lambda text, where: _read_pass(text.lower(), where)),
    "framework": ("framework", name()),
    "strategy": ("strategy", name()),
    "placement": ("placement", name()),
    "network": ("network", name()),
    "instance_type": ("instance_type", name()),
    "world_size": ("world_size", whole(1, MAX_WORLD_SIZE)),
    "server_count": ("server_count", whole(0, MAX_WORLD_SIZE)),
    "server_placement": ("server_placement", _one_of(ServerPlacement)),
    "replicas_per_rank": ("replicas_per_rank", whole(1, MAX_REPLICAS_PER_RANK)),
    "steps_between_averages": ("steps_between_averages", whole(1, MAX_STEPS)),
    "batch_split": ("batch_split", _one_of(BatchSplit)),
    "global_batch_size": ("global_batch_size", whole(1, MAX_GLOBAL_BATCH_SIZE)),
    "one_way_delay_ms": ("one_way_delay_s", _in_unit(fields.read_delay_s)),
    "jitter_ms": ("jitter_s", _in_unit(fields.read_delay_s)),
    "bandwidth_mbit_per_s": (
        "bandwidth_bytes_per_s",
        _in_unit(fields.read_bandwidth_bytes_per_s),
    ),
    "packet_loss_percent": ("packet_loss_ratio", _in_unit(fields.read_loss_ratio)),
}
RESULT: Mapping[str, tuple[str, _Read]] = {
    "step_time_s": ("step_time_s", number),
    "step_time_spread_s": ("step_time_spread_s", number),
    "steps_per_epoch": ("steps_per_epoch", whole(1, 2**31 - 1)),
    "time_per_epoch_s": ("time_per_epoch_s", number),
    "epochs": ("epochs", whole(1, MAX_STEPS)),
    "accuracy": ("accuracy", number),
    "status": ("status", status),
    "repetition": ("repetition", whole(0, 2**31 - 1)),
    "fingerprint": ("fingerprint", name(_FINGERPRINT_CHARACTERS)),
    "flags": ("flags", flags),
}
# An export has these; they are checked, and nothing that compares or predicts knows of them.
PASSED_ALONG: Mapping[str, tuple[str, _Read]] = {
    column.name: (column.name, passed_along(column))
    for column in MEASUREMENT_TABLE
    if not column.is_imported
}


def read_cells(
    cells: Mapping[str, str],
    columns: Mapping[str, tuple[str, _Read]],
    *,
    where: Callable[[str], str],
) -> tuple[dict[str, Any], list[InvalidSpec]]:
    """Read the cells that are not empty: values by field, and what had to be refused.

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
