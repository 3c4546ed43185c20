"""The charts of an answer: time and cost of every candidate against the world size, and each other.

Pure: from options to figures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from farm.charts.chart import ChartAxis, ChartSeries, Figure, Mark
from farm.recommend.answering.measured import UNNAMED, distinctions, told_apart_by
from farm.recommend.contracts import Basis, Option, Recommendation
from farm.recommend.objective import is_compared_by_step
from farm.text.display import count, dollars, duration, short_fingerprint
from farm.text.nouns import counted

MOST_WAYS = 12  # more lines than these cannot be told apart
_WORLD_SIZE = ChartAxis(title="World size", write=count, is_counted=True)
_COST = ChartAxis(title="Cost", write=dollars)


@dataclass(frozen=True, slots=True)
class AnswerInterval:
    """A value with its 90 % interval; None: nothing tells it."""

    value: float
    low: float | None
    high: float | None


def time_of(option: Option, *, by_step: bool) -> AnswerInterval | None:
    """Return the time of the training, or of one step where lengths are not known.

    The interval is that of an epoch, which the training has so many of, or of a step.
    """
    value = option.step_time_s if by_step else option.time_s
    one, low, high = (
        (option.step_time_s, option.step_low_s, option.step_high_s)
        if by_step or option.low_s is None
        else (option.time_per_epoch_s, option.low_s, option.high_s)
    )
    if value is None:
        return None
    if not one or low is None or high is None:
        return AnswerInterval(value, None, None)
    return AnswerInterval(value, value * low / one, value * high / one)


def cost_of(option: Option) -> AnswerInterval | None:
    """Return the cost of the training: as uncertain as its time, since prices are known."""
    time = time_of(option, by_step=False)
    if option.cost_usd is None or time is None or not time.value:
        return None
    factor = option.cost_usd / time.value
    return AnswerInterval(
        option.cost_usd,
        None if time.low is None else time.low * factor,
        None if time.high is None else time.high * factor,
    )


def way_names(options: Sequence[Option]) -> dict[tuple[object, ...], str]:
    """Name each way of training in the options: by its strategy, and what tells it from others."""
    ways = dict.fromkeys(_way(option) for option in options)
    by = told_apart_by(options)
    named: dict[tuple[object, ...], str] = {}
    for option in options:
        way = _way(option)
        parts = [str(way[0] or "unnamed strategy")]
        for position in range(1, len(way)):
            if len({other[position] for other in ways}) > 1 and way[position]:
                parts.append(_part(position, way[position]))
        parts += [words for words in distinctions(option, by) if words.startswith(UNNAMED)]
        # Of a way with options of one machine and of gangs, only these lack a network's name.
        named[way] = max(named.get(way, ""), ", ".join(parts), key=len)
    return named


def figures_of(answer: Recommendation) -> list[Figure]:
    """Return what can be drawn of an answer: nothing where it has no options."""
    by_step = is_compared_by_step(answer.options)
    titled = "Time of one step" if by_step else "Time of the training"
    figures = [
        _against_world_size(
            answer.options,
            lambda option: time_of(option, by_step=by_step),
            y=ChartAxis(title=titled, write=duration),
        ),
        _against_world_size(answer.options, cost_of, y=_COST),
        _pareto(answer),
    ]
    return [figure for figure in figures if figure is not None]


def _way(option: Option) -> tuple[object, ...]:
    return (
        option.strategy,
        option.instance_type,
        option.network,
        option.setup,
        option.framework,
        option.server_count,
        option.fingerprint,
    )


def _part(position: int, value: object) -> str:
    if position == 5:
        return counted(int(str(value)), "server")
    if position == 6:
        return f"hardware {short_fingerprint(str(value))}"
    return str(value)


def _against_world_size(
    options: Sequence[Option], read: Callable[[Option], AnswerInterval | None], *, y: ChartAxis
) -> Figure | None:
    names = way_names(options)
    by_way: dict[tuple[object, ...], list[Mark]] = {}
    for option in options:  # the best first, so the ways of the best options are drawn
        span = read(option)
        if span is not None:
            by_way.setdefault(_way(option), []).append(
                _mark(option, span, _named(option, names), x=option.world_size, write=y.write)
            )
    drawn = list(by_way.items())[:MOST_WAYS]
    if not drawn:
        return None
    left_out = len(by_way) - len(drawn)
    shown = [mark for _, marks in drawn for mark in marks]
    least, most = min(shown, key=lambda mark: mark.y), max(shown, key=lambda mark: mark.y)
    return Figure(
        title=f"{y.title} against the world size",
        summary=f"from {y.write(least.y)} at {least.x:g} to {y.write(most.y)} at {most.x:g}"
        + (f"; the {MOST_WAYS} best of {len(by_way)} kinds" if left_out else ""),
        x=_WORLD_SIZE,
        y=y,
        series=[
            ChartSeries(name=names[way], marks=sorted(marks, key=lambda mark: mark.x))
            for way, marks in drawn
        ],
    )


def _pareto(answer: Recommendation) -> Figure | None:
    names = way_names(answer.options)
    on_front = {id(option) for option in answer.pareto}
    front: list[Mark] = []
    others: list[Mark] = []
    for option in answer.options:
        time, cost = time_of(option, by_step=False), cost_of(option)
        if time is not None and cost is not None:
            name = f"{_named(option, names)}, {dollars(cost.value)}"
            mark = _mark(option, time, name, x=cost.value, write=duration)
            (front if id(option) in on_front else others).append(mark)
    if len(front) + len(others) < 2:
        return None
    series = [
        ChartSeries(name="Pareto front", marks=sorted(front, key=lambda mark: mark.x)),
        ChartSeries(name="others", marks=others, is_joined=False),
    ]
    return Figure(
        title="Time against cost",
        summary=f"{len(front)} of {len(front) + len(others)} options on the Pareto front",
        x=_COST,
        y=ChartAxis(title="Time of the training", write=duration),
        series=[one for one in series if one.marks],
    )


def _named(option: Option, names: Mapping[tuple[object, ...], str]) -> str:
    return f"{names[_way(option)]}, world size {option.world_size}"


def _mark(
    option: Option,
    span: AnswerInterval,
    name: str,
    *,
    x: float,
    write: Callable[[float | None], str],
) -> Mark:
    interval = ""
    if span.low is not None and span.high is not None:
        interval = f" (90 %: {write(span.low)} to {write(span.high)})"
    return Mark(
        x=x,
        y=span.value,
        low=span.low,
        high=span.high,
        is_solid=option.basis == Basis.MEASURED.value,
        note=f"{name}: {write(span.value)}{interval}, {option.basis}",
    )
