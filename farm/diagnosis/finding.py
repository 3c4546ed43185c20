"""The result of one check of `farm doctor`."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


class Level(enum.Enum):
    """From good to bad; `UNKNOWN` where another finding, listed too, hides the answer."""

    WELL = "well"
    UNKNOWN = "unknown"
    DOUBT = "doubt"  # the farm works; someone should look
    WRONG = "wrong"  # someone must act


@dataclass(frozen=True, slots=True)
class Finding:
    """`what` is so, and `remedy` is what to do about it; nothing where all is well."""

    level: Level
    what: str
    remedy: str | None = None


def well(what: str) -> Finding:
    return Finding(Level.WELL, what)


def unknown(what: str) -> Finding:
    return Finding(Level.UNKNOWN, what)


def doubt(what: str, remedy: str) -> Finding:
    return Finding(Level.DOUBT, what, remedy)


def wrong(what: str, remedy: str) -> Finding:
    return Finding(Level.WRONG, what, remedy)


def worst(findings: Iterable[Finding]) -> Level:
    """Return the worst level; well without findings."""
    order = list(Level)
    return max((finding.level for finding in findings), key=order.index, default=Level.WELL)


_MOST_NAMED = 5


def list_names(names: Sequence[str]) -> str:
    """Name some, and count the others: "a, b, c, d, e and 7 more"."""
    shown = ", ".join(names[:_MOST_NAMED])
    more = len(names) - _MOST_NAMED
    return f"{shown} and {more} more" if more > 0 else shown
