"""The columns of the measurement table: how each cell is read into base units, or refused.

Here milliseconds, megabits and percent become seconds, bytes per second and ratios. An empty cell
and a column that is not there say the same: the default, or that nothing is known.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from farm.core import fields
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
        raise InvalidSpec(where, text, "a number such as 0.25 or 1e-3, or nothing")
    return float(text)


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
