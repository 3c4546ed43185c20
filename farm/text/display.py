"""Formats values for people.

Only this module converts seconds to milliseconds and ratios to percent.

A missing value, or one that is not a finite number, is written as a dash, never as 0. Pages and
charts show the text unchanged. Commands print it with plain characters, see `plain`.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from decimal import Decimal
from typing import TypeGuard

MISSING = "–"  # noqa: RUF001 # an en dash, as typeset tables have it
_THIN_SPACE = "\u202f"
# Numbers beyond these have a power of ten, not hundreds of digits.
_LEAST_IN_DIGITS, _MOST_IN_DIGITS = 1e-9, 1e21
_FINGERPRINT_DIGITS = 12
_LEAST_WITH_DECIMALS_S = 1e-8  # 0.01 µs; shorter times have a power of ten
# Only what this module writes: a name that somebody gave keeps its characters.
_TYPESET = re.compile(rf"(?<=\d){_THIN_SPACE}(?=\d)|(?<=\d )µ(?=s\b)|(?<!\S){MISSING}(?=[),;\n]|$)")
_PLAIN = {_THIN_SPACE: " ", "µ": "u", MISSING: "-"}


def plain(text: str) -> str:
    """Return the text with its measured values in characters that every terminal and pipe takes.

    812 µs becomes 812 us, a thin space between digits a space, and a missing value "-".
    """
    return text if text.isascii() else _TYPESET.sub(lambda found: _PLAIN[found[0]], text)


def text(value: object | None) -> str:
    """Write a value as it is."""
    return MISSING if value is None else str(value)


def duration(seconds: float | None) -> str:
    """Write a duration with three significant digits, or in hours and minutes when long."""
    if not _is_known(seconds):
        return MISSING
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if seconds == 0:
        return "0 s"
    if seconds < 0.9995e-3:
        return f"{microseconds(seconds)} µs"
    if seconds < 0.9995:
        return f"{milliseconds(seconds)} ms"
    if seconds < 59.95:
        return f"{_three_digits(seconds)} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s" if whole % 60 else f"{whole // 60} min"
    minutes = round(seconds / 60)
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60} min" if minutes % 60 else f"{minutes // 60} h"
    return f"{count(seconds / 86400)} days"


def microseconds(seconds: float | None) -> str:
    """Write a duration for a column whose title has the unit."""
    return decimal(None if seconds is None else seconds * 1e6)


def milliseconds(seconds: float | None) -> str:
    """Write a duration for a column whose title has the unit."""
    return decimal(None if seconds is None else seconds * 1e3)


def exact_milliseconds(seconds: float) -> str:
    """Write a delay with all digits it was asked for with, for a place that has the unit."""
    return f"{seconds * 1e3:.9g}"


def roughly(seconds: float | None) -> str:
    """Write an estimate, which is no better than its first digits: whole seconds, or minutes."""
    if not _is_known(seconds):
        return MISSING
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return duration(round(seconds / 60) * 60.0)


def between(low_s: float | None, high_s: float | None, around_s: float | None) -> str:
    """Write from where to where, in the unit and with the digits that `duration` gives a time."""
    if not (_is_known(low_s) and _is_known(high_s) and _is_known(around_s)):
        return ""
    value, unit = duration(around_s).rsplit(" ", 1)
    scale = {"µs": 1e6, "ms": 1e3, "s": 1.0}.get(unit)
    if scale is None or " " in value or around_s < _LEAST_WITH_DECIMALS_S:
        return f"{duration(low_s)} to {duration(high_s)}"
    digits = len(value.partition(".")[2])
    return f"{low_s * scale:.{digits}f} to {high_s * scale:.{digits}f}"


def plus_minus(ratio: float | None) -> str:
    """Write the half-width of an interval, in percent of its value."""
    return f"± {_in_digits(ratio * 100, '.1f')} %" if _is_known(ratio) else ""


def byte_count(count_bytes: float | None) -> str:
    """Write bytes in decimal units."""
    if not _is_known(count_bytes):
        return MISSING
    value, unit = _scaled(count_bytes)
    return f"{value} {unit}B"


def kilobytes(count_bytes: float | None) -> str:
    """Write bytes for a column whose title has the unit."""
    return decimal(None if count_bytes is None else count_bytes / 1e3)


def megabytes(count_bytes: float | None) -> str:
    """Write bytes for a column whose title has the unit."""
    return decimal(None if count_bytes is None else count_bytes / 1e6)


def byte_rate(bytes_per_s: float | None) -> str:
    """Write bytes per second in decimal units."""
    return f"{byte_count(bytes_per_s)}/s" if _is_known(bytes_per_s) else MISSING


def flop_rate(flop_per_s: float | None) -> str:
    """Write floating-point operations per second in decimal units."""
    if not _is_known(flop_per_s):
        return MISSING
    value, unit = _scaled(flop_per_s)
    return f"{value} {unit}FLOP/s"


def joules(energy_j: float | None) -> str:
    """Write an energy in decimal units."""
    if not _is_known(energy_j):
        return MISSING
    value, unit = _scaled(energy_j)
    return f"{value} {unit}J"


def bit_rate(bytes_per_s: float | None) -> str:
    """Write a bandwidth as it is asked for, in megabits per second."""
    return f"{_three_digits(bytes_per_s * 8 / 1e6)} Mbit/s" if _is_known(bytes_per_s) else MISSING


def percent(ratio: float | None, digits: int = 0, *, is_signed: bool = False) -> str:
    """Write a ratio in percent. `digits`: after the point; `is_signed`: also more than 0 is."""
    sign = "+" if is_signed else ""
    return f"{_in_digits(ratio * 100, f'{sign}z.{digits}f')} %" if _is_known(ratio) else MISSING


def percent_in_digits(ratio: float | None, digits: int) -> str:
    """Write a ratio in percent with that many significant digits, without zeros at the end."""
    return f"{ratio * 100:.{digits}g} %" if _is_known(ratio) else MISSING


def points(ratio: float | None) -> str:
    """Write the difference of two ratios, in percentage points."""
    return f"{_in_digits(ratio * 100, 'z.1f')} points" if _is_known(ratio) else MISSING


def deviation(ratio: float | None) -> str:
    """Write by how much something is more, or less, than it should be."""
    return percent(ratio, 1, is_signed=True)


def likely(probability: float) -> str:
    """Write a probability in whole percents; neither end is ever certain."""
    if probability > 0.99:
        return "over 99 %"
    return "under 1 %" if probability < 0.01 else percent(probability)


def count(value: float | None) -> str:
    """Write a number without a fraction, thousands apart."""
    return _in_digits(value, "z,.0f").replace(",", _THIN_SPACE) if _is_known(value) else MISSING


def decimal(value: float | None) -> str:
    """Write a number with three significant digits."""
    return _three_digits(value) if _is_known(value) else MISSING


def dollars(usd: float | None) -> str:
    """Write an amount of money; a training may cost less than a cent."""
    if not _is_known(usd):
        return MISSING
    if abs(usd) >= 999.5:
        return f"{count(usd)} USD"
    # Three digits, which a format alone would write as 5e-05.
    return f"{_small(usd)} USD"


def machine_hours(machine_s: float | None) -> str:
    """Write the time of machines together, each machine's counted."""
    if not _is_known(machine_s):
        return MISSING
    hours = machine_s / 3600
    number = count(hours) if hours >= 999.5 else _small(hours)
    return f"{number} machine {'hour' if number == '1' else 'hours'}"


def short_fingerprint(fingerprint: str) -> str:
    """Write a fingerprint with enough digits to distinguish kinds of hardware."""
    return fingerprint[:_FINGERPRINT_DIGITS]


def in_text(title: str) -> str:
    """Write a title for use within a text: without a capital, except in words such as CPU."""
    return title if title[1:2].isupper() else title[:1].lower() + title[1:]


def clock(instant: dt.datetime | None) -> str:
    """Write an instant in UTC, which is what all machines of a farm share."""
    return MISSING if instant is None else f"{instant.astimezone(dt.UTC):%Y-%m-%d %H:%M:%S} UTC"


def ago(instant: dt.datetime | None, now: dt.datetime) -> str:
    """Write how long ago an instant of this server's own clock was."""
    if instant is None:
        return "never"
    seconds = max(0, int((now - instant).total_seconds()))
    if seconds < 60:
        return f"{seconds} s ago"
    if seconds < 3600:
        return f"{seconds // 60} min ago"
    if seconds < 48 * 3600:
        return f"{seconds // 3600} h ago"
    return f"{seconds // 86400} days ago"


def _is_known(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)


def _scaled(value: float) -> tuple[str, str]:
    if abs(value) < 999.5 and value == round(value):
        return count(value), ""  # bytes of one thing are whole, a mean of bytes need not be
    for unit in ("", "k", "M", "G", "T"):
        if abs(value) < 999.5 or unit == "T":
            return _three_digits(value), unit
        value /= 1000
    raise AssertionError("the last unit takes everything")


def _in_digits(value: float, form: str) -> str:
    return f"{float(value):.2e}" if abs(value) >= _MOST_IN_DIGITS else f"{value:{form}}"


def _small(value: float) -> str:
    if 0 < abs(value) < _LEAST_IN_DIGITS:
        return f"{value:.2e}"
    return f"{Decimal(f'{value:.3g}'):f}"


def _three_digits(value: float) -> str:
    if abs(value) >= 99.95 or value == 0:
        return count(value)
    if abs(value) < 0.00995:
        return _small(value)  # two decimals would leave nearly nothing
    return f"{value:.1f}" if abs(value) >= 9.995 else f"{value:.2f}"
