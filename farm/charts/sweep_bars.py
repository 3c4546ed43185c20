"""A metric of a sweep's cells as grouped bars: for axes that are names, not numbers. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from farm.cells.axes import named_together, order
from farm.cells.choice import Choice
from farm.cells.groups import Groups, Place
from farm.cells.table import CellLine, SweepTable
from farm.charts.bars import Bars, BarSeries
from farm.charts.chart import STYLES, ChartAxis, Mark
from farm.charts.value_mark import mark_of, marked_value
from farm.configuration.axes import Axis

MOST_GROUPS = 24
MOST_BARS_OF_A_GROUP = STYLES  # more than these cannot be told apart
_FEWEST_SIDE_BY_SIDE = 1.5  # on average, to tell bars apart by an axis that nobody asked for


def bars_of(table: SweepTable, choice: Choice) -> Bars | None:
    """Draw the chosen metric of every cell: a colour for each value of `choice.by`.

    A group is a place on all other axes that vary and are not held. Without `by`, it is the axis
    that puts most bars side by side. None where there are not two bars.
    """
    by = choice.by or _telling(table, choice)
    if by is None:
        return None
    groups = Groups(table, choice, shown=[by])
    values = sorted(set(table.values[by.name]), key=order)[:MOST_BARS_OF_A_GROUP]
    # Beside gangs one machine is what they begin with; alone it is one bar, not one a network.
    cells = [
        _known(groups.completed(one, {by.name: values}) if one.has_gang else one.cells, choice)
        for one in groups.found
    ]
    both = [(one.rest, of) for one, of in zip(groups.found, cells, strict=True) if of]
    kept = both[:MOST_GROUPS]
    names = _names([place for place, _ in kept], groups.rest)
    varying = _varying([place for place, _ in kept], groups.rest)
    y = ChartAxis(title=choice.metric.title, write=choice.metric.write)
    series = [
        BarSeries(
            name=by.named(value),
            marks=[
                _mark(of.get((value,)), choice, f"{name}, {by.named(value)}", x=i, y=y)
                for i, ((_, of), name) in enumerate(zip(kept, names, strict=True))
            ],
        )
        for value in values
    ]
    titles = [axis.title if i == 0 else axis.title.lower() for i, axis in enumerate(varying)]
    found = Bars(
        title=f"{choice.metric.title} by {by.title.lower()}",
        summary="",
        x=" and ".join(titles),
        y=y,
        groups=names,
        series=[one for one in series if any(mark is not None for mark in one.marks)],
    )
    if len(found.marks) < 2:
        return None
    shown = {of[place].cell_hash for _, of in kept for place in of if place[0] in values}
    every = {line.cell_hash for _, of in both for line in of.values()}
    return _with_summary(found, left_out=len(every - shown))


def _known(cells: dict[Place, CellLine], choice: Choice) -> dict[Place, CellLine]:
    return {place: one for place, one in cells.items() if choice.metric.read(one) is not None}


def _telling(table: SweepTable, choice: Choice) -> Axis | None:
    free = [axis for axis in table.axes if axis.name not in choice.fixed]
    few = [axis for axis in free if len(table.values[axis.name]) <= MOST_BARS_OF_A_GROUP]
    places = [place for _, place in choice.admitted(table)]

    def side_by_side(axis: Axis) -> float:
        at = table.axes.index(axis)
        groups = {place[:at] + place[at + 1 :] for place in places}
        return len(places) / len(groups) if groups else 0.0

    # Bars are for comparing what stands side by side; of names rather than of numbers, along which
    # there are lines.
    found = {axis: side_by_side(axis) for axis in few}
    comparing = [axis for axis, bars in found.items() if bars >= _FEWEST_SIDE_BY_SIDE]
    best = max(comparing, key=lambda axis: (not axis.is_number, found[axis]), default=None)
    return best or next(iter(few or free), None)


def _varying(places: Sequence[Place], rest: Sequence[Axis]) -> list[Axis]:
    return [axis for i, axis in enumerate(rest) if len({place[i] for place in places}) > 1]


def _names(places: Sequence[Place], rest: Sequence[Axis]) -> list[str]:
    varying = _varying(places, rest)
    if len(varying) == 1:
        # The axis' own title stands below.
        at = rest.index(varying[0])
        return [varying[0].text(place[at]) for place in places]
    varying_indices = [i for i, axis in enumerate(rest) if axis in varying]
    return [
        named_together(varying, [place[i] for i in varying_indices])
        or ("the usual" if varying else "all")
        for place in places
    ]


def _mark(line: CellLine | None, choice: Choice, name: str, *, x: int, y: ChartAxis) -> Mark | None:
    marked = None if line is None else marked_value(line, choice.metric)
    if line is None or marked is None:
        return None
    return mark_of(marked, name, line, x=float(x), y=y)


def _with_summary(bars: Bars, *, left_out: int) -> Bars:
    least, most = (pick(bars.marks, key=lambda mark: mark.y) for pick in (min, max))
    said = " to ".join(
        f"{bars.y.write(mark.y)} at {bars.groups[int(mark.x)]}" for mark in (least, most)
    )
    said = f"from {said}"
    if left_out:
        said += f"; {left_out} more cells are left out"
    return Bars(
        title=bars.title, summary=said, x=bars.x, y=bars.y, groups=bars.groups, series=bars.series
    )
