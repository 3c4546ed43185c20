"""Charts over the seconds of a run as data, without colours."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from farm.charts.chart import STYLES, ChartAxis, ends, ticks
from farm.text.display import decimal, duration

# (seconds, value) by seconds; None breaks a line.
TimedValues: TypeAlias = Sequence[tuple[float, float | None]]

_MOST_TICKS = 5
_TICK_STEPS_S = (
    *(1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200),
    *(3 * 3600, 6 * 3600, 12 * 3600, 86400, 2 * 86400, 7 * 86400, 30 * 86400),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineAxis:
    """`write` writes a value with its unit; `d3_format` and `suffix` do so in plotly.

    `top`: where its axis ends at the least, if it has an end by nature.
    """

    title: str
    write: Callable[[float | None], str] = decimal
    d3_format: str = ".3~g"
    suffix: str = ""
    top: float | None = None

    @property
    def axis(self) -> ChartAxis:
        """Return the axis of its values."""
        return ChartAxis(title=self.title, write=self.write)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineSeries:
    """`style`: the number of its colour. `is_over`: laid over the others, on the axis at the right.

    `is_dots`: points that no line joins.
    """

    name: str
    points: TimedValues
    style: int = 0
    is_over: bool = False
    is_dots: bool = False

    @property
    def tone(self) -> str:
        """Return the name of its colour in the style sheet."""
        return "quiet" if self.is_over else f"s{self.style % STYLES}"

    @property
    def is_dashed(self) -> bool:
        """Whether it is the second line in its colour."""
        return not self.is_over and self.style % (2 * STYLES) >= STYLES


@dataclass(frozen=True, slots=True, kw_only=True)
class Shade:
    """A highlighted stretch of seconds; `kind` names its colour."""

    name: str
    kind: str
    begin_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineFigure:
    """`summary` describes the figure for screen readers. `over`: title of the axis at the right.

    `key` names it in the page.
    """

    key: str
    title: str
    summary: str
    quantity: TimelineAxis
    lines: Sequence[TimelineSeries]
    over: TimelineAxis | None = None
    shades: Sequence[Shade] = ()

    @property
    def span_s(self) -> tuple[float, float]:
        """Return the first and the last second it shows."""
        seconds = [
            end
            for line in self.lines
            if line.points
            for end in (line.points[0][0], line.points[-1][0])
        ]
        if not seconds:
            return 0.0, 1.0
        return min(seconds), max(max(seconds), min(seconds) + 1.0)

    def extent(self, *, is_over: bool) -> tuple[float, float]:
        """Return the range of the axis at the left, or of the one at the right."""
        quantity = self.over if is_over else self.quantity
        assert quantity is not None, "what is laid over has an axis"
        lines = [line for line in self.lines if line.is_over == is_over]
        values = [value for line in lines for _, value in line.points if value is not None]
        if quantity.top is not None and max(values, default=0.0) <= quantity.top:
            return 0.0, quantity.top
        return ends(quantity.axis, values)

    def ticks(self, *, is_over: bool) -> list[float]:
        """Return the values to write on the axis at the left, or on the one at the right."""
        quantity = self.over if is_over else self.quantity
        assert quantity is not None, "what is laid over has an axis"
        low, high = self.extent(is_over=is_over)
        return [t for t in ticks(quantity.axis, [low, high / 1.06]) if low <= t <= high]


def second_ticks(begin_s: float, end_s: float) -> list[float]:
    """Return round seconds, minutes or hours from `begin_s` to `end_s`."""
    span_s = end_s - begin_s
    step_s = next((s for s in _TICK_STEPS_S if span_s / s <= _MOST_TICKS), _TICK_STEPS_S[-1])
    return [float(n * step_s) for n in range(math.ceil(begin_s / step_s), int(end_s // step_s) + 1)]


def write_second(second: float) -> str:
    """Write a second of a run without the digits that a measured time has."""
    return f"{second:g} s" if second < 60 else duration(second)
