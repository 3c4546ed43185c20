"""Charts of a sweep's cells: time, efficiency and cost along an axis, and cost against time.

Pure: from a table of cells and a choice to figures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from farm.figures.cell_axes import CellAxis, Value
from farm.figures.cell_groups import Group, Groups
from farm.figures.chart import STYLES, Axis, Figure, Mark, Series
from farm.figures.display import count, dollars, duration, percent
from farm.figures.sweep_choice import Choice
from farm.figures.sweep_table import CellLine, SweepTable

MOST_LINES = STYLES  # more than these cannot be told apart
MOST_PLACES = 60  # on a line
MOST_DOTS = 200  # of cost against time
_SPREAD_OF_LOGARITHMS = 8  # from this ratio on, an axis of numbers is logarithmic


@dataclass(frozen=True, slots=True)
class Told:
    """A value of a cell with its interval; None: nothing tells it."""

    value: float
    low: float | None
    high: float | None


_Read = Callable[[CellLine], Told | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """What is joined: cells by where they stand."""

    name: str
    cells: Sequence[tuple[float, CellLine]]


def figures_of(table: SweepTable, choice: Choice) -> dict[str, Figure]:
    """Return what can be drawn, by the name that its file has; nothing where nothing is known."""
    figures: dict[str, Figure | None] = {}
    if choice.along is not None:
        lines, said = _lines(table, choice, choice.along)
        x = _axis_along(choice.along, lines)
        for name, title, write, read in (
            ("time", "Step time", duration, _time),
            ("efficiency", "Scaling efficiency", percent, _efficiency),
            ("cost", "Cost of an epoch", dollars, _cost),
        ):
            y = Axis(title=title, write=write)
            figures[name] = _along(lines, read, x=x, y=y, said=said)
    figures["cost-time"] = _cost_against_time(table, choice)
    return {name: figure for name, figure in figures.items() if figure is not None}


def _time(line: CellLine) -> Told | None:
    known = line.statistics
    return None if known.median_s is None else Told(known.median_s, known.low_s, known.high_s)


def _efficiency(line: CellLine) -> Told | None:
    """As uncertain as the step time; that of the baseline comes on top."""
    time, value = _time(line), line.efficiency_ratio
    if value is None or time is None:
        return None
    if time.low is None or time.high is None:
        return Told(value, None, None)
    return Told(value, value * time.value / time.high, value * time.value / time.low)


def _cost(line: CellLine) -> Told | None:
    return _scaled(line, line.cost_usd)


def _epoch(line: CellLine) -> Told | None:
    return _scaled(line, line.time_per_epoch_s)


def _scaled(line: CellLine, value: float | None) -> Told | None:
    """Return a value that is proportional to the step time, as uncertain as that."""
    time = _time(line)
    if value is None:
        return None
    if time is None or time.low is None or time.high is None:
        return Told(value, None, None)
    return Told(value, value * time.low / time.value, value * time.high / time.value)


def _lines(table: SweepTable, choice: Choice, along: CellAxis) -> tuple[list[_Line], str]:
    """Return the lines with most cells, and a word on those that are left out."""
    groups = Groups(table, choice, shown=[along], is_on_number=True)
    drawn = groups.largest(MOST_LINES)
    values = [v for v in table.values[along.name] if v is not None]
    names = _names(drawn, groups.rest)
    lines = [
        _Line(name=name, cells=_placed(groups, group, {along.name: values}))
        for group, name in zip(drawn, names, strict=True)
    ]
    left_out = len(groups.found) - len(drawn)
    said = f"the {len(drawn)} lines with most cells, of {len(groups.found)}" if left_out else ""
    if len(values) > MOST_PLACES:
        said += f"{'; ' if said else ''}the first {MOST_PLACES} of {len(values)} values"
    return lines, said


def _placed(
    groups: Groups, group: Group, values: Mapping[str, Sequence[Value]]
) -> list[tuple[float, CellLine]]:
    placed = []
    for [value], line in groups.completed(group, values).items():
        assert value is not None, "the groups leave those out"
        placed.append((float(value), line))
    return sorted(placed, key=lambda one: one[0])[:MOST_PLACES]


def _names(groups: Sequence[Group], rest: Sequence[CellAxis]) -> list[str]:
    """Name each group by what tells it from the others."""
    telling = [i for i in range(len(rest)) if len({group.rest[i] for group in groups}) > 1]
    return [
        ", ".join(rest[i].named(group.rest[i]) for i in telling) or "this sweep" for group in groups
    ]


def _axis_along(along: CellAxis, lines: Sequence[_Line]) -> Axis:
    places = [place for line in lines for place, _ in line.cells]
    is_log = bool(places) and min(places) > 0 and max(places) / min(places) >= _SPREAD_OF_LOGARITHMS
    return Axis(title=along.title, write=along.write, is_log=is_log, is_counted=True)


def _along(lines: Sequence[_Line], read: _Read, *, x: Axis, y: Axis, said: str) -> Figure | None:
    series = []
    for line in lines:
        marks = [
            _mark(told, f"{line.name}, {x.title.lower()} {x.write(place)}", cell, x=place, y=y)
            for place, cell in line.cells
            if (told := read(cell)) is not None
        ]
        if marks:
            series.append(Series(name=line.name, marks=marks))
    if not series:
        return None
    return Figure(
        title=f"{y.title} against {x.title.lower()}",
        summary=_extremes([mark for one in series for mark in one.marks], x, y)
        + (f"; {said}" if said else ""),
        x=x,
        y=y,
        series=series,
    )


def _cost_against_time(table: SweepTable, choice: Choice) -> Figure | None:
    """Compare cells of every kind: what an epoch costs, and how long it takes."""
    x, y = Axis(title="Cost of an epoch", write=dollars), Axis(title="Epoch", write=duration)
    known = [
        (line, place)
        for line, place in choice.admitted(table)
        if line.cost_usd is not None and line.time_per_epoch_s is not None
    ]
    by_size: dict[int, list[Mark]] = {}
    for line, place in known[:MOST_DOTS]:
        named = zip(table.axes, place, strict=True)
        name = ", ".join(axis.named(value) for axis, value in named)
        told, cost = _epoch(line), line.cost_usd
        assert told is not None, "those without were left out"
        assert cost is not None, "those without were left out"
        mark = _mark(told, f"{name or 'this cell'}, {dollars(cost)}", line, x=cost, y=y)
        by_size.setdefault(line.configuration.world_size, []).append(mark)
    if len(known) < 2:
        return None
    marks = [mark for one in by_size.values() for mark in one]
    left_out = f"; the first {MOST_DOTS} of {len(known)} cells" if len(known) > MOST_DOTS else ""
    return Figure(
        title="Time of an epoch against its cost",
        summary=_extremes(marks, x, y) + left_out,
        x=x,
        y=y,
        series=[
            Series(name=f"world size {count(size)}", marks=by_size[size], is_joined=False)
            for size in sorted(by_size)[:MOST_LINES]
        ],
    )


def _mark(told: Told, name: str, line: CellLine, *, x: float, y: Axis) -> Mark:
    known = len(line.times_s)
    interval = ""
    if told.low is not None and told.high is not None:
        interval = f" (95 %: {y.write(told.low)} to {y.write(told.high)})"
    return Mark(
        x=x,
        y=told.value,
        low=told.low,
        high=told.high,
        note=f"{name}: {y.write(told.value)}{interval}, "
        f"{known} {'repetition' if known == 1 else 'repetitions'}",
    )


def _extremes(marks: Sequence[Mark], x: Axis, y: Axis) -> str:
    least, most = min(marks, key=lambda m: m.y), max(marks, key=lambda m: m.y)
    return (
        f"from {y.write(least.y)} at {x.write(least.x)} to {y.write(most.y)} at {x.write(most.x)}"
    )
