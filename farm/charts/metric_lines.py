"""Line charts of one metric of a sweep along one of its axes, in one panel or several.

Pure: turns a table of cells and a choice into figures.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from farm.cells.axes import EMULATOR, named_together, order
from farm.cells.choice import CellMetric, Choice
from farm.cells.groups import AxisValues, CellGroup, Groups, settled_axes, tells_work
from farm.cells.table import CellLine, SweepTable
from farm.charts.chart import STYLES, ChartAxis, ChartSeries, Figure, Mark
from farm.configuration.axis import Axis, Value
from farm.text.display import decimal
from farm.text.plurals import counted
from farm.values.fields import WholeNumber

MOST_LINES = STYLES  # more than these cannot be told apart
MOST_PLACES = 60  # on a line
MOST_PANELS = 9
SPREAD_OF_LOGARITHMS = 8  # from this ratio on, an axis of numbers is logarithmic


@dataclass(frozen=True, slots=True)
class MarkedValue:
    """A value of a cell with its interval; None: the end is not known."""

    value: float
    low: float | None
    high: float | None


def marked_value(line: CellLine, metric: CellMetric) -> MarkedValue | None:
    """Return a metric of a cell with its step time's uncertainty; None if not known.

    Of an efficiency, the uncertainty of one machine comes on top.
    """
    value, known = metric.read(line), line.statistics
    if value is None:
        return None
    middle_s, low_s, high_s = known.median_s, known.low_s, known.high_s
    if not metric.time_power or not middle_s or low_s is None or high_s is None:
        return MarkedValue(value, None, None)
    ends = [value * (end_s / middle_s) ** metric.time_power for end_s in (low_s, high_s)]
    return MarkedValue(value, min(ends), max(ends))


def mark_of(
    marked: MarkedValue, name: str, line: CellLine, *, x: float, y: ChartAxis, is_solid: bool = True
) -> Mark:
    """Return a mark with its name, its value and its number of repetitions."""
    count = counted(len(line.times_s), "repetition")
    disturbed = f", {line.disturbed_text}" if line.disturbed_text else ""
    interval = ""
    if marked.low is not None and marked.high is not None:
        interval = f" (95 %: {y.write(marked.low)} to {y.write(marked.high)})"
    return Mark(
        x=x,
        y=marked.value,
        low=marked.low,
        high=marked.high,
        is_solid=is_solid,
        note=f"{name}: {y.write(marked.value)}{interval}, {count}{disturbed}",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """What is joined: cells by where they stand."""

    name: str
    cells: Sequence[tuple[float, CellLine]]


def line_figures(
    table: SweepTable, choice: Choice, metrics: Sequence[CellMetric]
) -> list[Figure | None]:
    """Draw each metric's lines with most cells in one panel; None if it is not known."""
    along = choice.along
    if along is None:
        return [None for _ in metrics]
    groups = _groups(table, choice, along)
    return [_in_one_panel(table, groups, along, metric) for metric in metrics]


def no_lines(choice: Choice) -> str:
    """Return why the chosen metric has no lines."""
    if choice.along is None:
        return "there is no line to draw: this sweep varies no number"
    return nothing_known(choice)


def nothing_known(choice: Choice) -> str:
    """Return a message: no cell of the choice has its metric."""
    known = "at what is held" if choice.fixed else "yet"
    return f"there is nothing to draw: no cell has a known {choice.metric.title.lower()} {known}"


def line_panels(table: SweepTable, choice: Choice, metric: CellMetric) -> list[Figure]:
    """Draw a panel for each place on the axes beside `choice.by`, whose values are its lines.

    Without it one panel, but where its lines were too many: then the axis is found that makes few
    panels of few lines. Of more panels than can be shown those with most cells.
    """
    along = choice.along
    if along is None:
        return []
    groups = _groups(table, choice, along)
    by = choice.by if choice.by in groups.rest else None
    if by is None and len(groups.found) > MOST_LINES:
        by = _dividing(groups)
    if by is None:
        one = _in_one_panel(table, groups, along, metric)
        return [] if one is None else [one]
    beside = [axis for axis in groups.rest if axis is not by]
    panels = _panels(groups, beside)
    # Lone cells are no line; bars show them.
    long = {place: of for place, of in panels.items() if _is_line(groups, of, table, along)}
    panels = long or panels
    largest = sorted(panels, key=lambda place: -sum(len(g.cells) for g in panels[place]))
    kept = set(largest[:MOST_PANELS])
    note = f"{MOST_PANELS} of {len(panels)} panels" if len(panels) > MOST_PANELS else ""
    telling = [i for i in range(len(beside)) if len({place[i] for place in kept}) > 1]
    figures = []
    for place, members in panels.items():
        if place in kept:
            drawn = members[:MOST_LINES]
            title = named_together([beside[i] for i in telling], [place[i] for i in telling])
            title = title or f"{metric.title} against {along.title.lower()}"
            one = _figure(table, groups, drawn, along, metric, title=title, note=note, by=by)
            figures += [] if one is None else [one]
    return figures


def _groups(table: SweepTable, choice: Choice, along: Axis) -> Groups:
    # Where there is no delay there is no emulator: the first place of a line, and no other line.
    settled = [axis for axis in settled_axes(table, choice, [along]) if axis is EMULATOR]
    return Groups(table, choice, shown=[along], settled=settled, is_on_number=True)


def _in_one_panel(
    table: SweepTable, groups: Groups, along: Axis, metric: CellMetric
) -> Figure | None:
    drawn = groups.largest(MOST_LINES)
    left_out = len(groups.found) - len(drawn)
    note = f"the {len(drawn)} lines with most cells, of {len(groups.found)}" if left_out else ""
    title = f"{metric.title} against {along.title.lower()}"
    return _figure(table, groups, drawn, along, metric, title=title, note=note)


def _dividing(groups: Groups) -> Axis | None:
    """Return the axis of the lines, if the others then make few enough panels."""
    fitting = []
    for axis in groups.rest:
        panels = _panels(groups, [one for one in groups.rest if one is not axis])
        most = max(len(members) for members in panels.values())
        if most <= MOST_LINES and len(panels) <= MOST_PANELS:
            fitting.append((len(panels), axis))
    return min(fitting, key=lambda one: one[0])[1] if fitting else None


def _panels(groups: Groups, beside: Sequence[Axis]) -> dict[AxisValues, list[CellGroup]]:
    """Return the groups of each panel, by the panel's values of the axes `beside`.

    One machine is in each panel whose gangs do the same work, whatever their strategy and network.
    """
    columns = [groups.rest.index(axis) for axis in beside]
    panels: dict[AxisValues, list[CellGroup]] = {}
    for group in sorted(groups.found, key=lambda one: not one.has_gang):
        place = tuple(group.rest[i] for i in columns)
        of_work = [
            i for i, axis in enumerate(beside) if tells_work(axis, is_one_rank=group.is_one_rank)
        ]
        same_work = [p for p in panels if all(p[i] == place[i] for i in of_work)]
        for panel in [place] if group.has_gang or not same_work else same_work:
            panels.setdefault(panel, []).append(group)
    order_of = {id(group): i for i, group in enumerate(groups.found)}
    for members in panels.values():
        members.sort(key=lambda group: order_of[id(group)])
    return dict(sorted(panels.items(), key=lambda one: [order(value) for value in one[0]]))


def _is_line(groups: Groups, members: Sequence[CellGroup], table: SweepTable, along: Axis) -> bool:
    values = {along.name: [v for v in table.values[along.name] if v is not None]}
    return any(len(groups.completed(group, values)) > 1 for group in members)


def _figure(
    table: SweepTable,
    groups: Groups,
    drawn: Sequence[CellGroup],
    along: Axis,
    metric: CellMetric,
    *,
    title: str,
    note: str,
    by: Axis | None = None,
) -> Figure | None:
    values = [v for v in table.values[along.name] if v is not None]
    names = _names(drawn, groups.rest)
    if by is not None:
        short = [by.named(group.rest[groups.rest.index(by)]) for group in drawn]
        names = short if len(set(short)) == len(short) else names
    lines = [
        _Line(name=name, cells=_placed(groups, group, {along.name: values}))
        for group, name in zip(drawn, names, strict=True)
    ]
    if len(values) > MOST_PLACES:
        note += f"{'; ' if note else ''}the first {MOST_PLACES} of {len(values)} values"
    x, y = _axis_along(along, lines), ChartAxis(title=metric.title, write=metric.write)
    series = [
        ChartSeries(name=one.name, marks=marks)
        for one in lines
        if (marks := _marks(one, metric, x=x, y=y))
    ]
    if not series:
        return None
    summary = extremes([mark for one in series for mark in one.marks], x, y)
    return Figure(
        title=title,
        summary=summary + (f"; {note}" if note else ""),
        x=x,
        y=y,
        series=series,
    )


def _marks(line: _Line, metric: CellMetric, *, x: ChartAxis, y: ChartAxis) -> list[Mark]:
    return [
        mark_of(marked, f"{line.name}, {x.title.lower()} {x.write(place)}", cell, x=place, y=y)
        for place, cell in line.cells
        if (marked := marked_value(cell, metric)) is not None
    ]


def _placed(
    groups: Groups, group: CellGroup, values: Mapping[str, Sequence[Value]]
) -> list[tuple[float, CellLine]]:
    placed = []
    for [value], line in groups.completed(group, values).items():
        assert value is not None, "the groups leave those out"
        placed.append((float(value), line))
    return sorted(placed, key=lambda one: one[0])[:MOST_PLACES]


def _names(groups: Sequence[CellGroup], rest: Sequence[Axis]) -> list[str]:
    """Name each group by what tells it from the others."""
    telling = [i for i in range(len(rest)) if len({group.rest[i] for group in groups}) > 1]
    axes = [rest[i] for i in telling]
    return [
        named_together(axes, [group.rest[i] for i in telling])
        or ("the usual" if telling else "this sweep")
        for group in groups
    ]


def _axis_along(along: Axis, lines: Sequence[_Line]) -> ChartAxis:
    places = list(
        itertools.chain.from_iterable([place for place, _ in line.cells] for line in lines)
    )
    is_log = bool(places) and min(places) > 0 and max(places) / min(places) >= SPREAD_OF_LOGARITHMS
    number = int if isinstance(along.type, WholeNumber) else float
    labels = _Labels({place: along.text(number(place)) for place in places})
    return ChartAxis(title=along.title, write=labels, is_log=is_log, is_counted=True)


@dataclass(frozen=True, slots=True)
class _Labels:
    """Writes the places along an axis.

    A figure may be drawn in another process, to which the axis' own functions cannot be sent.
    """

    texts: Mapping[float | None, str]

    def __call__(self, place: float | None) -> str:
        return self.texts.get(place, decimal(place))


def extremes(marks: Sequence[Mark], x: ChartAxis, y: ChartAxis) -> str:
    """Describe the minimum and the maximum, and where they are."""
    least, most = min(marks, key=lambda m: m.y), max(marks, key=lambda m: m.y)
    return (
        f"from {y.write(least.y)} at {x.write(least.x)} to {y.write(most.y)} at {x.write(most.x)}"
    )
