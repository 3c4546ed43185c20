"""Write values for people: the one place where seconds become milliseconds and ratios percent.

A missing value is written as a dash, never as 0.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from decimal import Decimal

from farm.core.lifecycle import JobState

MISSING = "–"  # noqa: RUF001 # an en dash, as typeset tables have it
_THIN_SPACE = "\u202f"


def duration(seconds: float | None) -> str:
    """Write a duration with three significant digits, or in hours and minutes when long."""
    if seconds is None:
        return MISSING
    if seconds == 0:
        return "0 s"
    if seconds < 0.9995e-3:
        return f"{_three_digits(seconds * 1e6)} µs"
    if seconds < 0.9995:
        return f"{_three_digits(seconds * 1e3)} ms"
    if seconds < 59.95:
        return f"{_three_digits(seconds)} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s" if whole % 60 else f"{whole // 60} min"
    minutes = round(seconds / 60)
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60} min" if minutes % 60 else f"{minutes // 60} h"
    return f"{round(seconds / 86400)} days"


def roughly(seconds: float | None) -> str:
    """Write an estimate, which is no better than its first digits: whole seconds, or minutes."""
    if seconds is None:
        return MISSING
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return duration(round(seconds / 60) * 60.0)


def between(low_s: float | None, high_s: float | None, around_s: float | None) -> str:
    """Write from where to where, in the unit and with the digits that `duration` gives a time."""
    if low_s is None or high_s is None or around_s is None:
        return ""
    text, unit = duration(around_s).rsplit(" ", 1)
    scale = {"µs": 1e6, "ms": 1e3, "s": 1.0}.get(unit)
    if scale is None or " " in text:
        return f"{duration(low_s)} to {duration(high_s)}"
    digits = len(text.partition(".")[2])
    return f"{low_s * scale:.{digits}f} to {high_s * scale:.{digits}f}"


def plus_minus(ratio: float | None) -> str:
    """Write half of an interval, in percent of the value it stands behind."""
    return "" if ratio is None else f"± {ratio * 100:.1f} %"


def byte_count(count_bytes: float | None) -> str:
    """Write bytes in decimal units."""
    if count_bytes is None:
        return MISSING
    value, unit = _scaled(count_bytes)
    return f"{value} {unit}B"


def byte_rate(bytes_per_s: float | None) -> str:
    """Write bytes per second in decimal units."""
    return MISSING if bytes_per_s is None else f"{byte_count(bytes_per_s)}/s"


def bit_rate(bytes_per_s: float | None) -> str:
    """Write a bandwidth as it is asked for, in megabits per second."""
    return MISSING if bytes_per_s is None else f"{_three_digits(bytes_per_s * 8 / 1e6)} Mbit/s"


def percent(ratio: float | None, digits: int = 0) -> str:
    """Write a ratio in percent."""
    return MISSING if ratio is None else f"{ratio * 100:.{digits}f} %"


def likely(probability: float) -> str:
    """Write a probability in whole percents; neither end is ever certain."""
    if probability > 0.99:
        return "over 99 %"
    return "under 1 %" if probability < 0.01 else percent(probability)


def count(value: float | None) -> str:
    """Write a number without a fraction, thousands apart."""
    return MISSING if value is None else f"{value:,.0f}".replace(",", _THIN_SPACE)


def decimal(value: float | None) -> str:
    """Write a number with three significant digits."""
    return MISSING if value is None else _three_digits(value)


def dollars(usd: float | None) -> str:
    """Write an amount of money, of which the cheapest training costs less than a cent."""
    if usd is None:
        return MISSING
    if usd >= 999.5:
        return f"{count(usd)} USD"
    # Three digits, which a format alone would write as 5e-05.
    return f"{Decimal(f'{usd:.3g}'):f} USD"


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


def _scaled(value: float) -> tuple[str, str]:
    for unit in ("", "k", "M", "G", "T"):
        if abs(value) < 999.5 or unit == "T":
            return (f"{value:.0f}" if unit == "" else _three_digits(value)), unit
        value /= 1000
    raise AssertionError("the last unit takes everything")


def _three_digits(value: float) -> str:
    if abs(value) >= 99.95:
        return count(value)
    return f"{value:.1f}" if abs(value) >= 9.995 else f"{value:.2f}"


def shares(counts: Mapping[JobState, int]) -> Sequence[tuple[str, float]]:
    """Return what a progress bar shows: the share of each state, in percent, waiting left out."""
    total = sum(counts.values()) or 1
    active = counts[JobState.LEASED] + counts[JobState.RUNNING]
    parts = {
        "succeeded": counts[JobState.SUCCEEDED],
        "failed": counts[JobState.FAILED],
        "cancelled": counts[JobState.CANCELLED],
        "active": active,
    }
    return [(name, 100 * count / total) for name, count in parts.items() if count]
