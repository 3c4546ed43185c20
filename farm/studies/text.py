"""Writes quantities and tables in Markdown for the pages of studies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from farm.text import display

MISSING = display.plain(display.MISSING)


def _plain(write: Callable[[float | None], str]) -> Callable[[float | None], str]:
    return lambda value: display.plain(write(value))


# A number with three digits, such as 1 234, 123, 12.3, 1.23 or 0.12; a count, such as 9 610.
significant, whole = _plain(display.decimal), _plain(display.count)
# Seconds and bytes in the unit of the name, without it.
us, ms = _plain(display.microseconds), _plain(display.milliseconds)
kb, mb = _plain(display.kilobytes), _plain(display.megabytes)


def delay_ms(seconds: float) -> str:
    """Write a delay as it was asked for, in milliseconds without the unit."""
    return display.exact_milliseconds(seconds)


def percent(ratio: float | None, *, is_signed: bool = False) -> str:
    """Write a ratio in percent, with a decimal below 10 %."""
    digits = 1 if ratio is not None and abs(ratio) < 0.0995 else 0
    return display.plain(display.percent(ratio, digits, is_signed=is_signed))


def span(values: Iterable[str]) -> str:
    """Write "a to b" from the first and the last of ordered texts, or the one that all are."""
    texts = list(values) or [MISSING]
    return texts[0] if texts[0] == texts[-1] else f"{texts[0]} to {texts[-1]}"


def listing(texts: Sequence[str]) -> str:
    """Write "a, b and c"."""
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a Markdown table whose first column is text and the others numbers."""
    lines = [titles, [":---", *["---:"] * (len(titles) - 1)], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
