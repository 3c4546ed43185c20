"""What templates write values with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flask import Flask

from farm.gang.lifecycle import JobState
from farm.text import nouns
from farm.text.display import (
    ago,
    between,
    bit_rate,
    byte_count,
    byte_rate,
    clock,
    count,
    decimal,
    dollars,
    duration,
    in_text,
    likely,
    percent,
    plus_minus,
    roughly,
)


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Write "1 agent", "2 agents"; see `farm.text.nouns.counted`."""
    return nouns.counted(number, noun, plural, write=count)


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
    return [(name, 100 * jobs / total) for name, jobs in parts.items() if jobs]


def install(app: Flask) -> None:
    """Make these functions filters of the templates."""
    for function in (
        duration,
        in_text,
        roughly,
        between,
        plus_minus,
        byte_count,
        byte_rate,
        bit_rate,
        percent,
        likely,
        count,
        counted,
        decimal,
        dollars,
        clock,
        ago,
        shares,
    ):
        app.add_template_filter(function)
