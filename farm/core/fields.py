"""Fields of the forms that people write: each is looked up, read and checked, or refused by name.

Here milliseconds, percent and megabits become seconds, ratios and bytes per second.
"""

from __future__ import annotations

import difflib
import enum
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from farm.core.spec import EMULATORS, MAX_ONE_WAY_DELAY_S, NETWORK_NAME
from farm.errors import InvalidSpec

MAX_NAME_CHARACTERS = 200
# A terabit: beyond any link, and far from what would overflow a float.
MAX_BANDWIDTH_MBIT_PER_S = 1_000_000
MAX_TIME_LIMIT_S = 7 * 86400
MAX_PRECISION_PERCENT = 50
_BYTES_PER_S_IN_ONE_MBIT_PER_S = 125_000

_T = TypeVar("_T")
_E = TypeVar("_E", bound=enum.Enum)
Read = Callable[[object, str], _T]  # of the value and the name of its field


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ` (did you mean 'x'?)` for the closest of the known names, or nothing."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean '{close[0]}'?)" if close else ""


def refuse_unknown(table: Mapping[str, object], known: tuple[str, ...], *, where: str) -> None:
    """Refuse the first key that is not known; `where` is the path to the table."""
    for key, value in table.items():
        if key not in known:
            hint = did_you_mean(str(key), known)
            expected = f"one of the fields {', '.join(known)}{hint}"
            shown = key if isinstance(key, str) and key else repr(key)
            raise InvalidSpec(f"{where}{shown}", value, expected)


_REQUIRED = object()


def scalar(
    table: Mapping[str, object],
    key: str,
    *,
    where: str = "",
    read: Read[_T],
    default: object = _REQUIRED,
) -> _T:
    """Read a single value. Without a default it is required."""
    if key in table:
        return read(table[key], f"{where}{key}")
    if default is _REQUIRED:
        raise InvalidSpec(f"{where}{key}", None, "a value: this field is required")
    return default  # type: ignore[return-value] # the caller's default is of the reader's type


def axis(
    case: Mapping[str, object],
    key: str,
    *,
    where: str,
    read: Read[_T],
    default: tuple[_T, ...] = (),
) -> tuple[_T, ...]:
    """Read a list, or a single value as a list of one. Without a default it is required."""
    name = f"{where}{key}"
    if key not in case:
        if not default:
            raise InvalidSpec(name, None, "a value: this field is required")
        return default
    value = case[key]
    if not isinstance(value, list):
        return (read(value, name),)
    if not value:
        raise InvalidSpec(name, value, "at least one value")
    return tuple(read(item, f"{name}[{i}]") for i, item in enumerate(value))


# Each of these reads one value, of the field named, or raises InvalidSpec.


def read_name(value: object, where: str) -> str:
    # Not printable: line breaks, NUL (which PostgreSQL refuses) and halves of surrogate pairs.
    if isinstance(value, str) and value.strip() and value.isprintable():
        if len(value) <= MAX_NAME_CHARACTERS:
            return value
        raise InvalidSpec(where, value, f"at most {MAX_NAME_CHARACTERS} characters")
    raise InvalidSpec(where, value, "a text of printable characters")


def read_flag(value: object, where: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidSpec(where, value, "true or false")
    return value


def canonical(value: float) -> float:
    """Return the number with 12 significant digits, so that 0.1 * 3 and 0.3 are one value."""
    return float(f"{value:.12g}")


def whole(low: int, high: int) -> Read[int]:
    """Read a whole number; 64.0 is one, as JSON Schema has it."""

    def read(value: object, where: str) -> int:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        # bool is an int in Python, but 'true' is no count.
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise InvalidSpec(where, value, f"a whole number from {low} to {high}")
        return value

    return read


def _number(value: object) -> int | float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value + 0  # -0.0 becomes 0.0, which has another canonical text
    return None


def read_delay_s(value: object, where: str) -> float:
    number, high = _number(value), MAX_ONE_WAY_DELAY_S * 1000
    # Written so that NaN, which is neither below nor above anything, does not pass.
    if number is None or not 0 <= number <= high:
        raise InvalidSpec(where, value, f"a number of milliseconds from 0 to {high:g}")
    return canonical(number / 1000)


def read_emulator(value: object, where: str) -> str:
    if not isinstance(value, str) or value not in EMULATORS:
        hint = did_you_mean(str(value), EMULATORS)
        raise InvalidSpec(where, value, f"one of {', '.join(EMULATORS)}{hint}")
    return value


def read_loss_ratio(value: object, where: str) -> float:
    number = _number(value)
    if number is None or not 0 <= number < 100:
        raise InvalidSpec(where, value, "a percentage from 0 to below 100")
    # What is just below everything stays below it.
    rounded = canonical(number / 100)
    return rounded if rounded < 1 else number / 100


def read_precision_ratio(value: object, where: str) -> float:
    number = _number(value)
    if number is None or not 0 < number <= MAX_PRECISION_PERCENT:
        raise InvalidSpec(where, value, f"a percentage above 0 and up to {MAX_PRECISION_PERCENT}")
    return number / 100


def read_bandwidth_bytes_per_s(value: object, where: str) -> float | None:
    number = _number(value)
    if number is None or not 0 < number <= MAX_BANDWIDTH_MBIT_PER_S:
        expected = f"a number of Mbit/s above 0 and up to {MAX_BANDWIDTH_MBIT_PER_S}"
        raise InvalidSpec(where, value, expected)
    return canonical(number * _BYTES_PER_S_IN_ONE_MBIT_PER_S)


def choice(kind: type[_E]) -> Read[_E]:
    """Read one of the values of an enumeration."""

    def read(value: object, where: str) -> _E:
        try:
            return kind(value)
        except ValueError:
            allowed = " or ".join(repr(member.value) for member in kind)
            raise InvalidSpec(where, value, allowed) from None

    return read


def read_network_name(value: object, where: str) -> str:
    if not isinstance(value, str) or not NETWORK_NAME.fullmatch(value):
        expected = "the name of a network of the agents: letters, digits, '.', '_' and '-'"
        raise InvalidSpec(where, value, expected)
    return value


def read_labels(value: object, where: str) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise InvalidSpec(where, value, "a table of texts")
    return {read_name(key, where): read_name(item, f"{where}.{key}") for key, item in value.items()}


def read_time_limit_s(value: object, where: str) -> float:
    number = _number(value)
    if number is None or not 1 <= number <= MAX_TIME_LIMIT_S:
        raise InvalidSpec(where, value, f"a number of seconds from 1 to {MAX_TIME_LIMIT_S}")
    return float(number)
