"""The servers study's figures: what they show. `farm.charts.files` draws them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from farm.charts.chart import ChartAxis, ChartSeries, Figure, Mark
from farm.studies.run_groups import RunGroup, mark_of
from farm.studies.servers.lines import ALONE, ASYNC, NAMES, SYNC, ServerLines
from farm.text.display import duration, percent

_DELAY = ChartAxis(title="one-way delay", write=duration)
# So that a strategy looks the same in every panel, and one machine as in other studies.
_STYLES = {SYNC: 1, ASYNC: 2, ALONE: 0}


def time_figures(lines: ServerLines) -> list[Figure]:
    """Time per epoch and the share of a step that is computing, by delay."""
    return [
        _figure(
            lines,
            title="time per epoch",
            summary="Time per epoch against one-way delay, a line for each strategy.",
            y=ChartAxis(title="time per epoch", write=duration),
            mark=_of_column("time_per_epoch_s"),
        ),
        _figure(
            lines,
            title="not idle: a step's share of computing",
            summary="Share of a step in which a rank computes, against one-way delay.",
            y=ChartAxis(title="computing", write=_fine_percent, is_log=True),
            mark=_computing,
        ),
    ]


def waiting_figure(lines: ServerLines) -> Figure:
    """How many times as long as an asynchronous step a synchronous one takes, by delay."""
    delays_s = list(lines.waiting_ratios)
    marks = [
        mark
        for delay_s, values in lines.waiting_ratios.items()
        if (mark := mark_of(values, x=delay_s))
    ]
    equal = [Mark(x=x, y=1.0) for x in (delays_s[:1] + delays_s[-1:])]
    return Figure(
        title="a synchronous step, in asynchronous ones",
        summary="Synchronous over asynchronous step time against one-way delay.",
        x=_DELAY,
        y=ChartAxis(title="times as long"),
        series=[
            ChartSeries(name="synchronous / asynchronous", marks=marks, style=3),
            ChartSeries(name="equally long", marks=equal, has_dots=False, style=_STYLES[ALONE]),
        ],
    )


def accuracy_figure(lines: ServerLines) -> Figure:
    """Accuracy after the same examples by delay, and what one machine reaches, as level lines."""
    levels = []
    for place, strategy in enumerate((SYNC, ASYNC)):
        group = lines.alone_like(strategy)
        accuracy = group.median_of("accuracy") if group else None
        if group is None or accuracy is None:
            continue
        ends_s = (lines.delays_s[0], lines.delays_s[-1])
        levels.append(
            ChartSeries(
                name=f"{NAMES[ALONE]}, batch {group.first.global_batch_size}",
                marks=[Mark(x=x, y=accuracy) for x in ends_s],
                has_dots=False,
                style=_STYLES[ALONE] if place == 0 else 4,
            )
        )
    shown = _figure(
        lines,
        title="accuracy after the same examples",
        summary="Accuracy against one-way delay, beside one machine with as large updates.",
        y=ChartAxis(title="accuracy", write=percent),
        mark=_of_column("accuracy"),
    )
    return Figure(
        title=shown.title,
        summary=shown.summary,
        x=shown.x,
        y=shown.y,
        series=[*shown.series, *levels],
    )


def _figure(
    lines: ServerLines,
    *,
    title: str,
    summary: str,
    y: ChartAxis,
    mark: Callable[[RunGroup], Mark | None],
) -> Figure:
    def marks(line: tuple[RunGroup, ...]) -> Iterator[Mark]:
        yield from (found for point in line if (found := mark(point)) is not None)

    series = [
        ChartSeries(name=NAMES[strategy], marks=list(marks(line)), style=_STYLES[strategy])
        for strategy, line in lines.gangs.items()
    ]
    return Figure(title=title, summary=summary, x=_DELAY, y=y, series=series)


def _fine_percent(ratio: float | None) -> str:
    return percent(ratio, 2)


def _of_column(column: str) -> Callable[[RunGroup], Mark | None]:
    return lambda point: point.mark(column, x=point.first.one_way_delay_s)


def _computing(point: RunGroup) -> Mark | None:
    shares = [1 - ratio for ratio in point.values_of("idle_ratio") if ratio < 1]
    return mark_of(shares, x=point.first.one_way_delay_s)
