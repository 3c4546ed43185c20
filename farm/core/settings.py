"""Settings: one table says name, default, meaning and how to read each; documents follow it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from farm.errors import InvalidSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting. `parse` turns its text into a value and raises `ValueError` saying what fits."""

    name: str  # the environment variable, and the key in a configuration file
    default: str | None  # as it would be written; None: no value unless given
    meaning: str
    parse: Callable[[str], object] = str


def read_settings(
    settings: Iterable[Setting], environ: Mapping[str, str], *, file: Mapping[str, object]
) -> dict[str, object]:
    """Return name to value. The environment wins over the file, the file over the default.

    An empty text counts as not given, as systemd's and compose's environment files have it.

    Raises:
        InvalidSpec: a value does not parse, or the file has a key that is no setting.
    """
    table = {setting.name: setting for setting in settings}
    for key, given in file.items():
        if key not in table:
            raise InvalidSpec(key, given, f"one of the settings {', '.join(table)}")
        if not isinstance(given, str | int | float):
            raise InvalidSpec(key, given, "a text or a number")
    values: dict[str, object] = {}
    for name, setting in table.items():
        # Compared with "" and not asked for truth: 0 is a value.
        written = str(file.get(name, ""))
        text = environ.get(name) or written or setting.default
        if text is None:
            values[name] = None
            continue
        try:
            values[name] = setting.parse(text)
        except ValueError as error:
            raise InvalidSpec(name, text, str(error)) from None
    return values


def whole_number(low: int, high: int) -> Callable[[str], int]:
    """Return a parser of whole numbers within the bounds, both included."""

    def parse(text: str) -> int:
        expected = f"a whole number from {low} to {high}"
        try:
            value = int(text)
        except ValueError:
            raise ValueError(expected) from None
        if not low <= value <= high:
            raise ValueError(expected)
        return value

    return parse


def seconds(low: float, high: float) -> Callable[[str], float]:
    """Return a parser of durations in seconds within the bounds, both included."""

    def parse(text: str) -> float:
        expected = f"a number of seconds from {low:g} to {high:g}"
        try:
            value = float(text)
        except ValueError:
            raise ValueError(expected) from None
        if not low <= value <= high:
            raise ValueError(expected)
        return value

    return parse


def one_of(*allowed: str) -> Callable[[str], str]:
    """Return a parser of the words given, which are in capitals; a value need not be."""

    def parse(text: str) -> str:
        if text.upper() not in allowed:
            raise ValueError(f"one of {', '.join(allowed)}")
        return text.upper()

    return parse
