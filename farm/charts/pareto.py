"""Cost of an epoch against its time, with the Pareto front of the cells. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from farm.cells.axes import named_together
from farm.cells.choice import METRICS, Choice
from farm.cells.table import CellLine, SweepTable
from farm.charts.chart import STYLES, ChartAxis, ChartSeries, Figure, Mark
from farm.charts.metric_lines import SPREAD_OF_LOGARITHMS, extremes
from farm.charts.value_mark import mark_of, marked_value
from farm.configuration.axes import Value
from farm.configuration.scripts import workload_text
from farm.text.display import count, dollars, duration

MOST_DOTS = 200
_EPOCH = next(metric for metric in METRICS if metric.name == "time_per_epoch")


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
    said = f"{len(on_front)} of {len(shown)} cells are on the Pareto front"
    left_out = f"; the first {MOST_DOTS} of {len(dots)} cells" if len(dots) > MOST_DOTS else ""
    return Figure(
        title=f"Time of an epoch against its {'cost' if cost_of is _price else 'machine time'}",
        summary=f"{extremes(marks, x, y)}; {said}{left_out}",
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
