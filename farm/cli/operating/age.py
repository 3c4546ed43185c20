"""Ages on a command line: 90s, 15m, 12h, 30d, 8w."""

from __future__ import annotations

import datetime as dt
import re

import click

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


class Age(click.ParamType[dt.timedelta]):
    """A whole number with its unit, within bounds."""

    name = "AGE"

    def __init__(self, low: str, high: str) -> None:
        self._expected = f"a whole number with s, m, h, d or w, from {low} to {high}"
        self._low, self._high = parse_age(low), parse_age(high)

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> dt.timedelta:
        if isinstance(value, dt.timedelta):
            return value
        try:
            age = parse_age(str(value))
        except (ValueError, OverflowError):
            age = None
        if age is None or not self._low <= age <= self._high:
            self.fail(f"expected {self._expected}, got {value!r}", param, ctx)
        return age


def parse_age(text: str) -> dt.timedelta:
    """Read an age. Raises ValueError or OverflowError for what is none."""
    found = re.fullmatch(r"(\d{1,9})([smhdw])", text.strip(), re.ASCII)
    if found is None:
        raise ValueError(text)
    return dt.timedelta(seconds=int(found[1]) * _UNITS_S[found[2]])
