"""What templates write values with."""

from __future__ import annotations

from flask import Flask

from farm.figures.display import (
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
    likely,
    percent,
    plus_minus,
    roughly,
    shares,
)


def install(app: Flask) -> None:
    """Make these functions filters of the templates."""
    for function in (
        duration,
        roughly,
        between,
        plus_minus,
        byte_count,
        byte_rate,
        bit_rate,
        percent,
        likely,
        count,
        decimal,
        dollars,
        clock,
        ago,
        shares,
    ):
        app.add_template_filter(function)
