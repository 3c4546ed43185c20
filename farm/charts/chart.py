"""Charts of measured and predicted values as data: lines and grouped bars, without colours."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from farm.text.display import decimal

STYLES = 6  # told apart by colour; more series than these begin again
_TICKS = 5  # about so many on an axis


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One point; `low` to `high` is its interval, None if not known.

    `is_solid`: what is predicted is hollow, and so is a cell that another beats in everything.
    `note`: said of it, in one line.
    """

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    is_solid: bool = True
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartSeries:
    """Marks in the order in which a line joins them, unless `is_joined` is False.

    `has_dots` False: a line through the marks and nothing else, as a fit or a limit is. `style`:
    the number of its look, where it is not its place among the series.
    """

    name: str
    marks: Sequence[Mark]
    is_joined: bool = True
    has_dots: bool = True
    style: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartAxis:
    """`write` writes a value of it with its unit; `is_log` needs values above 0.

    `is_counted`: its values are few whole numbers, such as world sizes, and named themselves, about
    `most_counted` of them.
    """

    title: str
    write: Callable[[float | None], str] = decimal
    is_log: bool = False
    is_counted: bool = False
    most_counted: int = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartEvent:
    """Something that happened at a place on the axis of `x`, in words."""

    x: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """`summary` describes the figure for screen readers."""

    title: str
    summary: str
    x: ChartAxis
    y: ChartAxis
    series: Sequence[ChartSeries]
    events: Sequence[ChartEvent] = ()

    @property
    def marks(self) -> list[Mark]:
        """All marks of all series."""
        return [mark for series in self.series for mark in series.marks]


def heights(marks: Sequence[Mark]) -> list[float]:
    """Return all values that have a place on the axis of `y`, the ends of intervals too."""
    return [v for m in marks for v in (m.y, m.low, m.high) if v is not None]


def ends(axis: ChartAxis, values: Sequence[float]) -> tuple[float, float]:
    """Return the range of an axis: from 0, or with a margin on either side."""
    if not values:
        return (1.0, 10.0) if axis.is_log else (0.0, 1.0)
    low, high = min(values), max(values)
    if axis.is_log:
        room = (high / low) ** 0.06 if high > low else 1.5
        return low / room, high * room
    if high <= 0:
        return low * 1.06, (0.0 if low < 0 else 1.0)
    return min(0.0, low * 1.06), high * 1.06


def ticks(axis: ChartAxis, values: Sequence[float]) -> list[float]:
    """Return the values to write on an axis: round ones, or the counted ones."""
    if axis.is_counted and values:
        distinct = sorted(set(values))
        return distinct[:: math.ceil(len(distinct) / axis.most_counted)]
    low, high = ends(axis, values)
    return _powers(low, high) if axis.is_log else _round_steps(low, high)


def _round_steps(low: float, high: float) -> list[float]:
    rough = (high - low) / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= rough * 0.999)
    return [n * step for n in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _powers(low: float, high: float) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.floor(math.log10(high)) + 1)
    found = [m * 10.0**p for p in powers for m in (1, 2, 5) if low <= m * 10.0**p <= high]
    if len(found) < 2:  # so short an axis would have one number, from which nothing can be read
        between = (1, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9)
        found = [m * 10.0**p for p in powers for m in between if low <= m * 10.0**p <= high]
    if len(found) > 2 * _TICKS:
        found = [10.0**p for p in powers if low <= 10.0**p <= high]
    return found[:: math.ceil(len(found) / (2 * _TICKS))] if found else [low, high]


@dataclass(frozen=True, slots=True, kw_only=True)
class BarSeries:
    """The bars of one colour: a mark for each group, whose `x` is the group's place 0, 1, ...

    None: the group has no such bar, and leaves no room for it.
    """

    name: str
    marks: Sequence[Mark | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """`x`: the title of the groups. `summary` describes the figure for screen readers."""

    title: str
    summary: str
    x: str
    y: ChartAxis
    groups: Sequence[str]
    series: Sequence[BarSeries]

    @property
    def marks(self) -> list[Mark]:
        """All marks of all series."""
        return [mark for series in self.series for mark in series.marks if mark is not None]

    @property
    def most_side_by_side(self) -> int:
        """The bars of the group that has most of them: as wide is every group."""
        return max((len(self.of_group(i)) for i in range(len(self.groups))), default=0) or 1

    def of_group(self, place: int) -> list[tuple[int, Mark]]:
        """Return the bars of a group, each with the number of its series."""
        found = enumerate(series.marks[place] for series in self.series)
        return [(number, mark) for number, mark in found if mark is not None]
