"""Write quantities and tables as the pages of studies have them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

MISSING = "-"


def significant(value: float | None) -> str:
    """Write a number with three digits: 1 234, 123, 12.3, 1.23, 0.12."""
    if value is None:
        return MISSING
    magnitude = abs(value)
    if magnitude >= 99.95:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.1f}" if magnitude >= 9.995 else f"{value:.2f}"


def whole(count: int | None) -> str:
    """Write a count, thousands apart: 9 610."""
    return MISSING if count is None else f"{count:,}".replace(",", " ")


def ms(seconds: float | None) -> str:
    """Write seconds as milliseconds, without the unit."""
    return MISSING if seconds is None else significant(seconds * 1000)


def delay_ms(seconds: float) -> str:
    """Write a delay as it was asked for, in milliseconds without the unit."""
    return f"{seconds * 1000:g}"


def percent(ratio: float | None, *, is_signed: bool = False) -> str:
    """Write a ratio in percent, with a decimal below 10 %."""
    if ratio is None:
        return MISSING
    sign = "+" if is_signed else ""
    decimals = 1 if abs(ratio) < 0.0995 else 0
    return f"{ratio * 100:{sign}.{decimals}f} %"


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
