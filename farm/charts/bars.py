"""Data of grouped bar charts, without their looks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from farm.charts.chart import ChartAxis, Mark


@dataclass(frozen=True, slots=True, kw_only=True)
class BarSeries:
    """The bars of one colour: a mark for each group, whose `x` is the group's place 0, 1, ...

    None: the group has no such bar, and leaves no room for it.
    """

    name: str
    marks: Sequence[Mark | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """`x`: what the groups are, as a title. `summary` tells what is shown to who cannot see it."""

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
