"""The servers study: synchronous against asynchronous servers over growing delays, and its page.

No measurements of this study were published with their numbers, so the claims are theory alone.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.resources import files
from string import Template

from farm.charts.chart import ChartAxis, ChartSeries, Figure, Mark
from farm.charts.files.charts import draw_charts
from farm.measuring.study_run import StudyRun
from farm.studies import conditions
from farm.studies.contracts import Drawing, LabHosts, Page, Study
from farm.studies.orderings import Ordering, Place, Placed, claims_table
from farm.studies.run_groups import (
    RunGroup,
    differences,
    mark_of,
    placed_of,
    ratios,
    study_interval,
)
from farm.studies.servers.lines import (
    ALONE,
    ASYNC,
    NAMES,
    SYNC,
    ServerLines,
    accuracy_table,
    idleness_table,
    server_lines,
    share,
    times_table,
)
from farm.studies.text import MISSING, delay_ms, kb, listing, percent, significant, span, whole
from farm.text import display

_DELAY_AXIS = ChartAxis(title="one-way delay", write=display.duration)
# So that a strategy looks the same in every panel, and one machine as in other studies.
_STYLES = {SYNC: 1, ASYNC: 2, ALONE: 0}
_CLAIM_AXES = ("strategy", "one_way_delay_s")

CLAIMS = (
    Ordering(
        says="a synchronous step takes longer, since it waits for the slowest rank",
        of="step_time_s",
        along="strategy",
        order=(ASYNC, SYNC),
        is_rising=True,
        because="Ranks wait only if one is slower. Where all have equal machines and equal ways, "
        "which this lab gives them, a long way takes all of them the same time.",
    ),
    Ordering(
        says="a longer way makes a step longer, of both",
        of="step_time_s",
        along="one_way_delay_s",
        is_rising=True,
        because="A step contains its way; if it did not grow, something else has disturbed the "
        "runs with the shorter one.",
    ),
    Ordering(
        says="the longer the way, the less a synchronous step is longer",
        of="waiting_ratio",
        along="one_way_delay_s",
        is_rising=False,
        because="What a rank waits for another one is computing, on both and on the server, and "
        "no part of the way. Beside a long way it is too little to be measured.",
    ),
    Ordering(
        says="a longer way makes ranks idler",
        of="computing_ratio",
        along="one_way_delay_s",
        is_rising=False,
        because="Idle is all of a step but computing, and that takes the same time at any "
        "distance. Where nearly all of a step is idle, little is left to grow.",
    ),
    Ordering(
        says="synchronous ranks are idler than asynchronous ones",
        of="computing_ratio",
        along="strategy",
        order=(ASYNC, SYNC),
        is_rising=False,
        because="The model is so small that both do nothing else but wait, if not for each other "
        "then for the server.",
    ),
    Ordering(
        says="from as many examples asynchronous ranks learn less",
        of="accuracy",
        along="strategy",
        order=(ASYNC, SYNC),
        is_rising=True,
        because="A synchronous update is made from the examples of all ranks, an asynchronous one "
        "from those of one rank, at the same learning rate. From the same examples asynchronous "
        "ranks make as many times more updates as there are ranks. Early in training more updates "
        "bring more than their staleness costs.",
    ),
    Ordering(
        says="with as many updates of the same size, stale ones teach less than fresh ones",
        of="accuracy_by_update",
        along="strategy",
        order=(ASYNC, ALONE),
        is_rising=True,
        because="One update of another rank in between changes the weights little; what it costs "
        "is about as much as repetitions differ by.",
    ),
)


def servers_page(runs: Sequence[StudyRun]) -> Page:
    """Make the page and its figures.

    Raises:
        FarmError: no gang has a time, or the gangs did not do the same work.
    """
    lines = server_lines(runs)
    template = Template(files("farm.studies.servers").joinpath("page.md").read_text())
    text = template.substitute(
        **_set_up(lines),
        **_method(runs, lines),
        findings=conditions.findings(lines.runs, lambda some: _findings(server_lines(some))),
        verdicts_rest_on=conditions.verdicts_rest_on(lines.runs),
        times=times_table(lines),
        idleness=idleness_table(lines),
        accuracies=accuracy_table(lines),
        claims=claims_table(
            CLAIMS,
            own=conditions.of_undisturbed(
                lines.runs, lambda some: claimed_values(server_lines(some))
            ),
        ),
    )
    figures = [*time_figures(lines), waiting_figure(lines), accuracy_figure(lines)]
    # Each with a key of its own: not all have the same lines.
    draw = partial(draw_charts, figures, columns=2, shares_legend=False, row_height_in=2.9)
    return Page(text=text, drawings=(Drawing("servers", draw),))


def _set_up(lines: ServerLines) -> dict[str, str]:
    first = lines.first
    steps = sorted({point.first.steps_per_epoch or 0 for point in lines.points})
    return {
        "model": f"`{first.model}`",
        "dataset": f"`{first.dataset}`",
        "parameters": whole(first.parameter_count),
        "gradients": kb(first.gradient_bytes or 0),
        "ranks": str(first.world_size),
        "servers": "1 server" if first.server_count == 1 else f"{first.server_count} servers",
        "place": "on a host of its own" if first.server_placement == "apart" else "beside a rank",
        "batch": str(first.global_batch_size),
        "share": str(first.global_batch_size // first.world_size),
        "epochs": "1 epoch" if first.epochs == 1 else f"{first.epochs or MISSING} epochs",
        "steps": span(map(str, steps)),
        "delays": listing([delay_ms(delay_s) for delay_s in lines.delays_s]),
    }


def _method(runs: Sequence[StudyRun], lines: ServerLines) -> dict[str, str]:
    counts = sorted(len(group.runs) for group in [*lines.points, *lines.alone.values()])
    return {
        "machine": conditions.machine(lines.runs),
        "count": str(len(lines.runs)),
        "repetitions": span(map(str, counts)),
        "sharing": _sharing(lines),
        "round_trips": conditions.round_trips(lines.runs),
        "noise": conditions.noise(lines.runs, of="rank"),
        "left_out": conditions.left_out(runs, lines.runs),
    }


def _sharing(lines: ServerLines) -> str:
    first = lines.first
    hosts = first.world_size
    if first.server_placement == "apart":
        hosts += first.server_count or 0
    cores = max(point.first.core_count for point in lines.points)
    if cores >= hosts:
        return f"Each of a gang's {hosts} hosts had a core of its own."
    return f"The {hosts} hosts of a gang shared {cores} {'core' if cores == 1 else 'cores'}."


def _findings(lines: ServerLines) -> list[str]:
    """Return one line for each that the runs tell."""
    return [*_growths(lines), *_waiting(lines), *_idleness(lines), *_accuracies(lines)]


def _growths(lines: ServerLines) -> list[str]:
    """How much longer a step becomes by the way, from the nearest to the farthest."""
    parts = []
    for strategy, line in lines.gangs.items():
        near, far = line[0], line[-1]
        near_s, far_s = near.median_of("step_time_s"), far.median_of("step_time_s")
        apart_s = far.first.one_way_delay_s - near.first.one_way_delay_s
        if near_s is None or far_s is None or apart_s <= 0:
            continue
        growth = (far_s - near_s) / apart_s
        parts.append(
            f"{significant(growth)} ms, which is {growth / 2:.1f} round trips, with `{strategy}`"
        )
    if not parts:
        return []
    return [f"Each millisecond of one-way delay makes a step longer by {listing(parts)}."]


def _waiting(lines: ServerLines) -> list[str]:
    """Whether waiting for the slowest can be told from not waiting, by delay."""
    by_verdict: dict[str, list[str]] = {}
    for delay_s, values in lines.waiting_ratios.items():
        interval = study_interval(values)
        middle = statistics.median(values)
        if interval is None or interval.low_s <= 1 <= interval.high_s:
            verdict = "as long as an asynchronous one within what repetitions differ by"
        elif middle > 1:
            verdict = "longer than an asynchronous one"
        else:
            verdict = "shorter than an asynchronous one"
        by_verdict.setdefault(verdict, []).append(f"{middle:.2f} times at {delay_ms(delay_s)} ms")
    return [
        f"A synchronous step is {verdict}: {listing(parts)} one way, by the ratios of runs with"
        " the same seed."
        for verdict, parts in by_verdict.items()
    ]


def _idleness(lines: ServerLines) -> list[str]:
    parts = []
    for delay_s in dict.fromkeys((lines.delays_s[0], lines.delays_s[-1])):
        known = [
            f"{share(idle)} with `{strategy}`"
            for strategy in lines.gangs
            if (point := lines.at(strategy, delay_s))
            and (idle := point.median_of("idle_ratio")) is not None
        ]
        if known:
            parts.append(f"at {delay_ms(delay_s)} ms one way {listing(known)}")
    return [f"Of a step a rank is idle {'; '.join(parts)}."] if parts else []


def _accuracies(lines: ServerLines) -> list[str]:
    text = []
    medians = {
        strategy: [value for point in line if (value := point.median_of("accuracy")) is not None]
        for strategy, line in lines.gangs.items()
    }
    parts = [
        f"{span(map(percent, sorted(values)))} with `{strategy}`"
        for strategy, values in medians.items()
        if values
    ]
    if parts:
        text.append(f"From the same examples the accuracy is {listing(parts)}, by delay.")
    for strategy in (SYNC, ASYNC):
        alone = lines.alone_like(strategy)
        line = lines.gangs.get(strategy, ())
        accuracy = alone.median_of("accuracy") if alone else None
        if alone is None or accuracy is None or not medians.get(strategy):
            continue
        text.append(
            f"One machine with as large updates ({alone.first.global_batch_size} examples) reaches"
            f" {percent(accuracy)}; of the same seed {_most_apart(line, alone)} away from it is the"
            f" farthest {NAMES[strategy]} run."
        )
    text += _duels(lines)
    late = [v for p in lines.gangs.get(ASYNC, ()) if (v := p.mean_of("staleness_mean")) is not None]
    if late:
        text.append(
            "Between an asynchronous rank's reading of the weights and its update come"
            f" {span(significant(value) for value in sorted(late))} updates of the other ranks,"
            " on average, by delay."
        )
    return text


def _duels(lines: ServerLines) -> list[str]:
    """Count who is more accurate, seed by seed and delay by delay: three seeds tell no more."""
    quotients = [
        quotient
        for delay_s in lines.delays_s
        if (sync := lines.at(SYNC, delay_s)) and (other := lines.at(ASYNC, delay_s))
        for quotient in ratios(other, sync, "accuracy")
    ]
    if not quotients:
        return []
    ahead, behind = sum(q > 1 for q in quotients), sum(q < 1 for q in quotients)
    return [
        f"In {len(quotients)} pairs of runs with the same seed and delay the asynchronous one is"
        f" the more accurate {ahead} times, and the synchronous one {behind} times."
    ]


def _most_apart(line: tuple[RunGroup, ...], alone: RunGroup) -> str:
    """Write the largest difference between runs of the same seed, in points of accuracy."""
    apart = [value for point in line for value in differences(point, alone, "accuracy")]
    return display.points(max(apart, default=0.0))


def time_figures(lines: ServerLines) -> list[Figure]:
    """Time per epoch and the share of a step that is computing, by delay."""
    return [
        _figure(
            lines,
            title="time per epoch",
            summary="Time per epoch against one-way delay, a line for each strategy.",
            y=ChartAxis(title="time per epoch", write=display.duration),
            mark=_column_mark("time_per_epoch_s"),
        ),
        _figure(
            lines,
            title="not idle: a step's share of computing",
            summary="Share of a step in which a rank computes, against one-way delay.",
            y=ChartAxis(
                title="computing", write=lambda ratio: display.percent(ratio, 2), is_log=True
            ),
            mark=_computing_mark,
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
        x=_DELAY_AXIS,
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
        y=ChartAxis(title="accuracy", write=display.percent),
        mark=_column_mark("accuracy"),
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
    return Figure(title=title, summary=summary, x=_DELAY_AXIS, y=y, series=series)


def _column_mark(column: str) -> Callable[[RunGroup], Mark | None]:
    return lambda point: point.mark(column, x=point.first.one_way_delay_s)


def _computing_mark(point: RunGroup) -> Mark | None:
    shares = [1 - ratio for ratio in point.values_of("idle_ratio") if ratio < 1]
    return mark_of(shares, x=point.first.one_way_delay_s)


def claimed_values(lines: ServerLines) -> dict[str, list[Placed]]:
    """Return the medians that the claims are about, by the name of the value."""
    values = {
        "step_time_s": [p for one in lines.points if (p := one.placed("step_time_s", _CLAIM_AXES))],
    }
    values["computing_ratio"] = [p for one in lines.points if (p := _placed_computing(one))]
    values["waiting_ratio"] = [
        placed
        for delay_s, values_of_delay in lines.waiting_ratios.items()
        if (placed := placed_of(values_of_delay, {"one_way_delay_s": delay_s}))
    ]
    base = lines.alone_like(SYNC)
    values["accuracy"] = [p for one in lines.points if (p := _placed_accuracy(one, one, base))]
    values["accuracy_by_update"] = _placed_by_update(lines)
    return values


def _placed_computing(group: RunGroup) -> Placed | None:
    """Place what is not idle: a share near 1 has no interval that may not exceed it."""
    at = {axis: getattr(group.first, axis) for axis in _CLAIM_AXES}
    return placed_of([1 - v for v in group.values_of("idle_ratio") if v < 1], at)


def _placed_by_update(lines: ServerLines) -> list[Placed]:
    """Each asynchronous point, and beside it one machine, which is the same at every delay."""
    alone = lines.alone_like(ASYNC)
    if alone is None:
        return []
    pairs = [(point, group) for point in lines.gangs.get(ASYNC, ()) for group in (point, alone)]
    return [p for point, group in pairs if (p := _placed_accuracy(group, point, alone))]


def _placed_accuracy(group: RunGroup, where: RunGroup, base: RunGroup | None) -> Placed | None:
    """Place the accuracy of a group where another one stands, in terms of one machine's.

    Seed by seed, since seeds differ by more than strategies do; as it is, where no such machine was
    measured.
    """
    relative = ratios(group, base, "accuracy") if base else []
    at: Place = {
        "strategy": group.first.strategy or "",
        "one_way_delay_s": where.first.one_way_delay_s,
    }
    return placed_of(relative or [v for v in group.values_of("accuracy") if v > 0], at)


SERVERS = Study(
    name="servers",
    summary="parameter servers that wait for the slowest rank, and that do not, at up to 200 ms",
    place=LabHosts(3),
    page_file="studies/servers.md",
    page=servers_page,
)
