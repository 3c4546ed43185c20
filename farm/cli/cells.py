"""Write measured values in plain ASCII, for terminals and pipes."""

from __future__ import annotations

import datetime as dt

from farm.cli.output import MISSING

_BYTE_UNITS = ("B", "kB", "MB", "GB", "TB")


def text(value: object | None) -> str:
    """Write a value as it is; what is missing as a dash."""
    return MISSING if value is None else str(value)


def duration(seconds: float | None) -> str:
    """Write a duration with three digits: 812 us, 12.3 ms, 4.56 s, 3 min 20 s, 2 h 5 min."""
    if seconds is None:
        return MISSING
    if seconds >= 60:
        whole = round(seconds)
        if whole >= 3600:
            return f"{whole // 3600} h {whole % 3600 // 60} min"
        return f"{whole // 60} min {whole % 60} s"
    factor, unit = _unit(seconds)
    return f"{_digits(seconds * factor)} {unit}" if seconds else "0 s"


def estimate(seconds: float) -> str:
    """Write a duration that is only guessed: whole seconds, or minutes and seconds."""
    whole = max(1, round(seconds))
    return duration(whole) if whole >= 60 else f"{whole} s"


def size(count: float | None, *, per: str = "") -> str:
    """Write a number of bytes with three digits, in powers of 1000."""
    if count is None:
        return MISSING
    value, unit = float(count), _BYTE_UNITS[0]
    for unit in _BYTE_UNITS:
        if abs(value) < 999.5 or unit == _BYTE_UNITS[-1]:
            break
        value /= 1000
    return f"{_digits(value)} {unit}{per}"


def number(value: float | None) -> str:
    """Write a number with three digits."""
    return MISSING if value is None else _digits(value)


def percent(ratio: float | None, *, decimals: int = 0) -> str:
    return MISSING if ratio is None else f"{ratio * 100:.{decimals}f} %"


def precise(median_s: float | None, half_width_ratio: float | None) -> str:
    """Write a step time with half of its interval, in percent of it."""
    if median_s is None or half_width_ratio is None:
        return duration(median_s)
    return f"{duration(median_s)} ± {half_width_ratio * 100:.1f} %"


def between(median_s: float | None, low_s: float | None, high_s: float | None, what: str) -> str:
    """Write a step time and in parentheses from where to where `what` goes, in the same unit."""
    if median_s is None or low_s is None or high_s is None or median_s >= 60:
        return duration(median_s)
    factor, _ = _unit(median_s)
    return f"{duration(median_s)} ({what}{_digits(low_s * factor)} to {_digits(high_s * factor)})"


def instant(value: dt.datetime | None) -> str:
    """Write an instant in UTC, to the second."""
    return MISSING if value is None else value.strftime("%Y-%m-%d %H:%M:%SZ")


def age(value: dt.datetime | None, now: dt.datetime) -> str:
    return MISSING if value is None else f"{duration(max(0.0, (now - value).total_seconds()))} ago"


def _unit(seconds: float) -> tuple[float, str]:
    """Return the factor and the name of the largest unit of which there is, rounded, one."""
    if seconds >= 0.9995:
        return 1.0, "s"
    return (1e3, "ms") if seconds >= 0.9995e-3 else (1e6, "us")


def _digits(value: float) -> str:
    magnitude = abs(value)
    if magnitude >= 99.95 or magnitude == 0:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.1f}" if magnitude >= 9.995 else f"{value:.2f}"
