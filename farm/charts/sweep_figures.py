"""All figures of a sweep's cells: lines, grouped bars, and cost against time. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from farm.cells.axes import named_together, order
from farm.cells.choice import CELL_METRICS, Choice
from farm.cells.groups import AxisValues, Groups
from farm.cells.table import CellLine, SweepTable
from farm.charts.chart import STYLES, Bars, BarSeries, ChartAxis, ChartSeries, Figure, Mark
from farm.charts.metric_lines import (
    SPREAD_OF_LOGARITHMS,
    extremes,
    line_figures,
    mark_of,
    marked_value,
)
from farm.configuration.axis import Axis, Value
from farm.configuration.scripts import workload_text
from farm.text.display import count, dollars, duration

# Of the charts along an axis: the name of the file, and of the metric.
LINES = {"time": "step_time", "efficiency": "efficiency", "cost": "cost"}
BARS, PARETO = "bars", "cost-time"
MOST_GROUPS = 24
MOST_BARS_OF_A_GROUP = STYLES  # more than these cannot be told apart
_FEWEST_SIDE_BY_SIDE = 1.5  # on average, to tell bars apart by an axis that nobody asked for
MOST_DOTS = 200
_EPOCH = next(metric for metric in CELL_METRICS if metric.name == "time_per_epoch")


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


def _known(cells: dict[AxisValues, CellLine], choice: Choice) -> dict[AxisValues, CellLine]:
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


def _varying(places: Sequence[AxisValues], rest: Sequence[Axis]) -> list[Axis]:
    return [axis for i, axis in enumerate(rest) if len({place[i] for place in places}) > 1]


def _names(places: Sequence[AxisValues], rest: Sequence[Axis]) -> list[str]:
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
    summary = " to ".join(
        f"{bars.y.write(mark.y)} at {bars.groups[int(mark.x)]}" for mark in (least, most)
    )
    summary = f"from {summary}"
    if left_out:
        summary += f"; {left_out} more cells are left out"
    return Bars(
        title=bars.title,
        summary=summary,
        x=bars.x,
        y=bars.y,
        groups=bars.groups,
        series=bars.series,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Dot:
    line: CellLine
    place: Sequence[Value]
    cost: float
    time_s: float


def cost_against_time(table: SweepTable, choice: Choice) -> Figure | None:
    """Compare cells of every kind, those on the Pareto front solid and joined by a line.

    A cell is on the front if none of the same workload is both cheaper and faster. Where no cell
    has a price, machines x time is the cost. None for fewer than two cells.
    """
    x, cost_of = ChartAxis(title="Cost of an epoch", write=dollars), _price
    dots = _dots(table, choice, cost_of)
    if not dots:
        x, cost_of = ChartAxis(title="Machine time of an epoch", write=duration), _machine_s
        dots = _dots(table, choice, cost_of)
    if len(dots) < 2:
        return None
    y = ChartAxis(title="Time of an epoch", write=duration)
    shown = dots[:MOST_DOTS]
    fronts = _fronts(shown)
    on_front = {id(dot) for front in fronts.values() for dot in front}
    series = [
        ChartSeries(
            name=name, marks=[Mark(x=d.cost, y=d.time_s) for d in front], has_dots=False, style=0
        )
        for name, front in fronts.items()
    ]
    by_size: dict[int, list[Mark]] = {}
    for dot in shown:
        is_best = id(dot) in on_front
        marked = marked_value(dot.line, _EPOCH)
        assert marked is not None, "those without were left out"
        name = f"{named_together(table.axes, dot.place) or 'this cell'}, {x.write(dot.cost)}"
        name += ", on the Pareto front" if is_best else ""
        mark = mark_of(marked, name, dot.line, x=dot.cost, y=y, is_solid=is_best)
        by_size.setdefault(dot.line.configuration["world_size"], []).append(mark)
    series += [
        ChartSeries(
            name=f"world size {count(size)}", marks=by_size[size], is_joined=False, style=1 + i
        )
        for i, size in enumerate(sorted(by_size)[:STYLES])
    ]
    marks = [mark for one in by_size.values() for mark in one]
    x, y = _scaled(x, [mark.x for mark in marks]), _scaled(y, [mark.y for mark in marks])
    counts = f"{len(on_front)} of {len(shown)} cells are on the Pareto front"
    left_out = f"; the first {MOST_DOTS} of {len(dots)} cells" if len(dots) > MOST_DOTS else ""
    return Figure(
        title=f"Time of an epoch against its {'cost' if cost_of is _price else 'machine time'}",
        summary=f"{extremes(marks, x, y)}; {counts}{left_out}",
        x=x,
        y=y,
        series=series,
    )


def _scaled(axis: ChartAxis, values: Sequence[float]) -> ChartAxis:
    is_wide = min(values) > 0 and max(values) / min(values) >= SPREAD_OF_LOGARITHMS
    return dataclasses.replace(axis, is_log=is_wide)


def _price(line: CellLine) -> float | None:
    return line.cost_usd


def _machine_s(line: CellLine) -> float | None:
    epoch_s = line.time_per_epoch_s
    return None if epoch_s is None else line.configuration.machine_count * epoch_s


def _dots(
    table: SweepTable, choice: Choice, cost_of: Callable[[CellLine], float | None]
) -> list[_Dot]:
    return [
        _Dot(line=line, place=place, cost=cost, time_s=line.time_per_epoch_s)
        for line, place in choice.admitted(table)
        if line.time_per_epoch_s is not None and (cost := cost_of(line)) is not None
    ]


def _fronts(dots: Sequence[_Dot]) -> dict[str, list[_Dot]]:
    """Return the front of each workload by its name; costs rise along it and times fall."""
    workloads: dict[tuple[str, str, str], list[_Dot]] = {}
    for dot in dots:
        what = dot.line.configuration
        key = (what["model"], what["dataset"], what["training_pass"])
        workloads.setdefault(key, []).append(dot)
    fronts: dict[str, list[_Dot]] = {}
    for key, members in workloads.items():
        front: list[_Dot] = []
        for dot in sorted(members, key=lambda d: (d.cost, d.time_s)):
            if not front or dot.time_s < front[-1].time_s:
                front.append(dot)
        name = "Pareto front, its cells solid"
        if len(workloads) > 1:
            name += f", {workload_text(key[0], key[1])}, {key[2].replace('_', ' + ')}"
        fronts[name] = front
    return fronts


def figures_of(table: SweepTable, choice: Choice) -> dict[str, Figure | Bars]:
    """Return the figures that can be drawn; empty if nothing is known."""
    metrics = {metric.name: metric for metric in CELL_METRICS}
    lines = line_figures(table, choice, [metrics[of] for of in LINES.values()])
    figures: dict[str, Figure | Bars | None] = dict(zip(LINES, lines, strict=True))
    figures[PARETO] = cost_against_time(table, choice)
    figures[BARS] = bars_of(table, choice)
    return {name: figure for name, figure in figures.items() if figure is not None}
