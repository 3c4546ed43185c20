"""Single JSON values and free JSON, checked when they enter a process."""

from __future__ import annotations

import math
from collections.abc import Callable

from farm.core.ranges import FIGURE

MAX_DEPTH = 32  # of free JSON; what we write ourselves has three or four
# Of a key, in the path that an error names: a long one would be copied with every item below it.
_SHOWN_CHARACTERS = 80


class Misfit(Exception):
    """What does not fit. `path`: where, the innermost step first, such as `[3]` or `.rank`."""

    def __init__(self, value: object, expected: str, *path: str) -> None:
        self.value = value
        self.expected = expected
        self.path = list(path)

    def below(self, step: str) -> Misfit:
        self.path.append(step)
        return self


def read_free(data: object, depth: int = 0) -> object:
    """Refuse in free JSON what JSON has not, what no database takes, and endless nesting."""
    if depth > MAX_DEPTH:
        raise Misfit(data, f"at most {MAX_DEPTH} levels")
    if isinstance(data, dict):
        for key, item in data.items():
            if not isinstance(key, str):
                raise Misfit(key, "a text as key")
            if isinstance(item, float) and FIGURE.low <= item <= FIGURE.high:
                continue  # series hold little else, and a call for each would double their cost
            try:
                read_free(item, depth + 1)
            except Misfit as misfit:
                raise misfit.below(step_to(key)) from None
    elif isinstance(data, list | tuple):
        for i, item in enumerate(data):
            try:
                read_free(item, depth + 1)
            except Misfit as misfit:
                raise misfit.below(f"[{i}]") from None
    elif isinstance(data, float):
        if not FIGURE.takes(_read_float(data)):
            raise Misfit(data, str(FIGURE))
    elif isinstance(data, int):
        _read_int(int(data))
    elif data is not None and not isinstance(data, str):
        raise Misfit(data, "a text")
    return data


def _read_float(data: object) -> float:
    if isinstance(data, float) and math.isfinite(data):  # first, since series hold little else
        return data
    if isinstance(data, int) and not isinstance(data, bool):
        try:
            data = float(data)
        except OverflowError:
            raise Misfit(data, "a finite number") from None
    if not isinstance(data, float):
        raise Misfit(data, "a number")
    if not math.isfinite(data):
        raise Misfit(data, "a finite number")
    return data


def _read_int(data: object) -> int:
    # bool is an int in Python, but 'true' is no count.
    if not isinstance(data, int) or isinstance(data, bool):
        raise Misfit(data, "a whole number")
    if not -(2**63) <= data < 2**63:
        raise Misfit(data, "a whole number of at most 64 bits")
    return data


def _read_str(data: object) -> str:
    if not isinstance(data, str):
        raise Misfit(data, "a text")
    if "\0" in data:
        raise Misfit(data, "a text without the character NUL")
    return data


def _read_bool(data: object) -> bool:
    if not isinstance(data, bool):
        raise Misfit(data, "true or false")
    return data


def step_to(key: object) -> str:
    """Return the step of a path that leads to the value of a table's key, such as `.rank`."""
    return f".{str(key)[:_SHOWN_CHARACTERS]}"


SCALARS: dict[type, Callable[[object], object]] = {
    float: _read_float,
    int: _read_int,
    str: _read_str,
    bool: _read_bool,
}
