"""The chart of one configuration's step time over days, with the versions that changed. Pure.

Each kind of machine has a panel of its own, since measurements of different machines are never
compared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from farm.cells.choice import STEP_TIME
from farm.cells.history import CellHistory, HistoryPoint
from farm.cells.table import CellLine
from farm.charts.chart import ChartAxis, ChartEvent, ChartSeries, Figure, Mark
from farm.charts.metric_lines import mark_of, marked_value
from farm.text.plurals import counted

_MOST_PANELS = 4
_MOST_LETTERS = 34  # of an event, so that it fits the height of a panel
# By how sure a point is, the surest first.
_SURE, _FEW, _DISTURBED = "95 % interval known", "fewer than 3 repetitions", "disturbed"
_CERTAINTIES = (_SURE, _FEW, _DISTURBED)


def history_figures(history: CellHistory) -> list[Figure]:
    """Draw the points that have a step time, in their order; of more machines those with most."""
    panels: dict[str, list[HistoryPoint]] = {}
    for point in history.points:
        if point.line.times_s:
            panels.setdefault(point.machine or "unknown machines", []).append(point)
    largest = sorted(panels, key=lambda machine: len(panels[machine]), reverse=True)[:_MOST_PANELS]
    return [_figure(machine, panels[machine]) for machine in panels if machine in largest]


def _figure(machine: str, points: Sequence[HistoryPoint]) -> Figure:
    days = {
        n: ("" if point.measured_at is None else f"{point.measured_at:%Y-%m-%d}")
        for n, point in enumerate(points, start=1)
    }
    y = ChartAxis(title="Step time", write=STEP_TIME.write, is_log=True)
    marks: dict[str, list[Mark]] = {name: [] for name in _CERTAINTIES}
    for place, point in zip(days, points, strict=True):
        marked = marked_value(point.line, STEP_TIME)
        if marked is not None:
            name = _certainty(point.line)
            label = f"sweep {point.sweep_id}, {days[place]}, {point.verdict_text}"
            mark = mark_of(marked, label, point.line, x=place, y=y, is_solid=name == _SURE)
            marks[name].append(mark)
    verdicts = [point.verdict_text for point in points]
    return Figure(
        title=machine,
        summary=f"{counted(len(points), 'point')}, "
        f"{verdicts.count('slower')} slower and {verdicts.count('faster')} faster than before",
        x=ChartAxis(
            title="Measured", write=lambda x: days.get(math.ceil(x or 0), ""), is_counted=True
        ),
        y=y,
        series=[
            ChartSeries(name=name, marks=marks[name], is_joined=False, style=style)
            for style, name in enumerate(_CERTAINTIES)
            if marks[name]
        ],
        events=[
            ChartEvent(x=place - 0.5, text=_short("; ".join(point.changes)))
            for place, point in zip(days, points, strict=True)
            if point.changes
        ],
    )


def _certainty(line: CellLine) -> str:
    if line.is_disturbed:
        return _DISTURBED
    return _FEW if line.statistics.low_s is None else _SURE


def _short(text: str) -> str:
    return text if len(text) <= _MOST_LETTERS else f"{text[: _MOST_LETTERS - 1]}…"
