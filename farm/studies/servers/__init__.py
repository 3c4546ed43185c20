"""The servers study: synchronous and asynchronous parameter servers by delay, and its page.

No measurements of this study were published with their numbers, so the claims are theory alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from farm.charts.chart import ChartAxis, ChartSeries, Figure, Mark
from farm.charts.files.charts import draw_charts
from farm.errors import FarmError
from farm.measuring.study_run import StudyRun
from farm.studies import conditions, tables
from farm.studies.conditions import refuse_other_work
from farm.studies.contracts import Drawing, LabHosts, Page, Study, write_page
from farm.studies.orderings import Coordinates, Ordering, Placed, claims_table
from farm.studies.run_groups import (
    RunGroup,
    by_verdict,
    differences,
    level,
    one_kind,
    placed_of,
    ratios,
    ratios_along,
    run_groups,
    values_series,
)
from farm.studies.text import MISSING, delay_ms, listing, ms, percent, significant, span, whole
from farm.text import display
from farm.text.plurals import counted

SYNC, ASYNC, ALONE = "ps_sync", "ps_async", "single"
_STRATEGY_NAMES = {SYNC: "synchronous", ASYNC: "asynchronous", ALONE: "one machine"}
# So that a strategy looks the same in every panel, and one machine as in other studies.
_STYLES = {SYNC: 1, ASYNC: 2, ALONE: 0}
_CLAIM_AXES = ("strategy", "one_way_delay_s")

ORDERINGS = (
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLines:
    """`gangs`: by strategy and delay what was measured; `alone`: by batch, of one machine."""

    runs: tuple[StudyRun, ...]
    gangs: dict[str, dict[float, RunGroup]]
    alone: dict[int, RunGroup]

    @property
    def points(self) -> list[RunGroup]:
        """All points of both strategies, the synchronous one's first."""
        return [point for line in self.gangs.values() for point in line.values()]

    @property
    def first(self) -> StudyRun:
        """Return a gang's run, to ask what all of them have in common."""
        return self.points[0].first

    @property
    def delays_s(self) -> list[float]:
        """Return every delay at which a gang was measured."""
        return sorted({point.one_way_delay_s for point in self.points})

    def ratios(self, over: str, under: str, column: str) -> dict[float, list[float]]:
        """Return by delay and repetition a column of one strategy over that of the other."""
        return ratios_along(self.gangs.get(over, {}), self.gangs.get(under, {}), column)

    @property
    def waiting_ratios(self) -> dict[float, list[float]]:
        """By delay how many times as long as an asynchronous step a synchronous one takes."""
        return self.ratios(SYNC, ASYNC, "step_time_s")

    def alone_like(self, strategy: str) -> RunGroup | None:
        """Return the one machine whose updates have as many examples as the strategy's have."""
        batch = self.first["global_batch_size"]
        return self.alone.get(batch // self.first["world_size"] if strategy == ASYNC else batch)


def server_lines(runs: Sequence[StudyRun]) -> ServerLines:
    """Sort the runs of the study.

    Raises:
        FarmError: no gang has a time, or the gangs did not do the same work.
    """
    known = [run for run in runs if run["strategy"] in _STRATEGY_NAMES]
    refuse_other_work(
        [run for run in known if run["strategy"] != ALONE],
        *("model", "data set", "batch", "number of ranks", "number of servers"),
        *("place of the servers", "number of epochs"),
        compares="two strategies at one model, data set, batch, gang and number of epochs",
    )
    kept = one_kind(known, study="servers")
    groups = run_groups(kept, ("strategy", "global_batch_size", "one_way_delay_s"))
    gangs: dict[str, dict[float, RunGroup]] = {SYNC: {}, ASYNC: {}}
    for group in groups:
        if group.first["strategy"] in gangs:
            gangs[group.first["strategy"]][group.one_way_delay_s] = group
    measured = [group for line in gangs.values() for group in line.values()]
    if not measured:
        raise FarmError("the servers study has no measured gang to show")
    work = (measured[0].first["model"], measured[0].first["dataset"])
    return ServerLines(
        runs=tuple(kept),
        gangs={strategy: line for strategy, line in gangs.items() if line},
        alone={
            group.global_batch_size: group
            for group in groups
            if group.first["strategy"] == ALONE
            and (group.first["model"], group.first["dataset"]) == work
        },
    )


def servers_page(runs: Sequence[StudyRun]) -> Page:
    """Make the page and its figures.

    Raises:
        FarmError: no gang has a time, or the gangs did not do the same work.
    """
    lines = server_lines(runs)
    first = lines.first
    is_apart = first["server_placement"] == "apart"
    epoch_steps = {point.first["steps_per_epoch"] or 0 for point in lines.points}
    groups = [*lines.points, *(lines.alone[batch] for batch in sorted(lines.alone, reverse=True))]
    texts = conditions.texts(runs, lines.runs, groups, of="rank") | {
        "parameters": whole(first.parameter_count),
        "ranks": str(first["world_size"]),
        "servers": counted(first["server_count"], "server"),
        "place": "on a host of its own" if is_apart else "beside a rank",
        "batch": str(first["global_batch_size"]),
        "share": str(first["global_batch_size"] // first["world_size"]),
        "epoch_steps": span(map(str, sorted(epoch_steps))),
        "delays": listing([delay_ms(delay_s) for delay_s in lines.delays_s]),
        "sharing": _sharing(lines),
        "findings": conditions.findings(lines.runs, lambda some: _findings(server_lines(some))),
        "times": tables.table_of(lines.points, _TIMES),
        "idleness": tables.table_of(lines.points, _IDLENESS),
        "accuracies": tables.table_of(groups, _ACCURACIES),
        "claims": claims_table(
            ORDERINGS,
            own=conditions.of_undisturbed(
                lines.runs, lambda some: claimed_values(server_lines(some))
            ),
        ),
    }
    figures = [*time_figures(lines), waiting_figure(lines), accuracy_figure(lines)]
    # Each with a key of its own: not all have the same lines.
    draw = partial(draw_charts, figures, columns=2, shares_legend=False, row_height_in=2.9)
    return write_page("servers", texts, Drawing("servers", draw))


def _sharing(lines: ServerLines) -> str:
    hosts = lines.first["world_size"]
    if lines.first["server_placement"] == "apart":
        hosts += lines.first["server_count"]
    cores = max(point.first.core_count for point in lines.points)
    if cores >= hosts:
        return f"Each of a gang's {hosts} hosts had a core of its own."
    return f"The {hosts} hosts of a gang shared {counted(cores, 'core')}."


def _findings(lines: ServerLines) -> list[str]:
    """Return one line for each that the runs tell."""
    return [
        *_growths(lines),
        *_waiting(lines),
        *_idleness(lines),
        *_accuracies(lines),
        *_duels(lines),
        *_lateness(lines),
    ]


def _growths(lines: ServerLines) -> list[str]:
    """How much longer a step becomes by the way, from the nearest to the farthest."""
    parts = []
    for strategy, line in lines.gangs.items():
        near, far = line[min(line)], line[max(line)]
        near_s, far_s = near.median_of("step_time_s"), far.median_of("step_time_s")
        apart_s = far.one_way_delay_s - near.one_way_delay_s
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
    verdicts = by_verdict(
        {f"at {delay_ms(delay_s)} ms": v for delay_s, v in lines.waiting_ratios.items()},
        equal="as long as an asynchronous one within what repetitions differ by",
        more="longer than an asynchronous one",
        less="shorter than an asynchronous one",
    )
    return [
        f"A synchronous step is {verdict}: {listing(parts)} one way, by the ratios of runs with"
        " the same seed."
        for verdict, parts in verdicts.items()
    ]


def _idleness(lines: ServerLines) -> list[str]:
    parts = []
    for delay_s in dict.fromkeys((lines.delays_s[0], lines.delays_s[-1])):
        known = [
            f"{_share(idle)} with `{strategy}`"
            for strategy, line in lines.gangs.items()
            if (point := line.get(delay_s)) and (idle := point.median_of("idle_ratio")) is not None
        ]
        if known:
            parts.append(f"at {delay_ms(delay_s)} ms one way {listing(known)}")
    return [f"Of a step a rank is idle {'; '.join(parts)}."] if parts else []


def _accuracies(lines: ServerLines) -> list[str]:
    parts, beside_one_machine = [], []
    for strategy, line in lines.gangs.items():
        medians = [point.median_of("accuracy") for point in line.values()]
        known = sorted(value for value in medians if value is not None)
        if not known:
            continue
        parts.append(f"{span(map(percent, known))} with `{strategy}`")
        alone = lines.alone_like(strategy)
        accuracy = alone.median_of("accuracy") if alone else None
        if alone is None or accuracy is None:
            continue
        # Of runs with the same seed.
        apart = [v for point in line.values() for v in differences(point, alone, "accuracy")]
        beside_one_machine.append(
            f"One machine with as large updates ({alone.global_batch_size} examples) reaches"
            f" {percent(accuracy)}; of the same seed {display.points(max(apart, default=0.0))} away"
            f" from it is the farthest {_STRATEGY_NAMES[strategy]} run."
        )
    if not parts:
        return []
    return [
        f"From the same examples the accuracy is {listing(parts)}, by delay.",
        *beside_one_machine,
    ]


def _duels(lines: ServerLines) -> list[str]:
    """Count who is more accurate, seed by seed and delay by delay: three seeds tell no more."""
    by_delay = lines.ratios(ASYNC, SYNC, "accuracy")
    quotients = [ratio for of_delay in by_delay.values() for ratio in of_delay]
    if not quotients:
        return []
    ahead, behind = sum(q > 1 for q in quotients), sum(q < 1 for q in quotients)
    return [
        f"In {len(quotients)} pairs of runs with the same seed and delay the asynchronous one is"
        f" the more accurate {ahead} times, and the synchronous one {behind} times."
    ]


def _lateness(lines: ServerLines) -> list[str]:
    means = [point.mean_of("staleness_mean") for point in lines.gangs.get(ASYNC, {}).values()]
    late = sorted(value for value in means if value is not None)
    if not late:
        return []
    return [
        "Between an asynchronous rank's reading of the weights and its update come"
        f" {span(map(significant, late))} updates of the other ranks, on average, by delay."
    ]


def _share(ratio: float | None) -> str:
    """Write a ratio near 1 in percent, with the decimals in which it differs."""
    return display.plain(display.percent(ratio, 2))


def _name(point: RunGroup) -> str:
    if point.has_network:
        return f"`{point.first['strategy']}`"
    return f"{_STRATEGY_NAMES[ALONE]}, batch {point.global_batch_size}"


def _trips(point: RunGroup) -> str:
    """Write how many of its own round trips a step takes."""
    rtt_s, step_s = point.median_of("rtt_s"), point.median_of("step_time_s")
    return f"{step_s / rtt_s:.1f}" if point.one_way_delay_s > 0 and step_s and rtt_s else MISSING


def _computing(point: RunGroup) -> str:
    idle, step_s = point.median_of("idle_ratio"), point.median_of("step_time_s")
    return ms(None if idle is None or step_s is None else (1 - idle) * step_s)


def _updates(point: RunGroup) -> str:
    """Write the updates; one machine alone makes one in every step of its epochs."""
    count = point.median_of("update_count") or point.step_count
    return MISSING if count is None else f"{count:.0f}"


_NAMES: tuple[tables.GroupColumn, ...] = (("strategy", _name), tables.DELAY_COLUMN)
_TIMES: tuple[tables.GroupColumn, ...] = (
    *_NAMES,
    tables.median("round trip (ms)", "rtt_s", ms),
    tables.median("step (ms)", "step_time_s", ms),
    tables.interval("step_time_s", ms),
    ("step (round trips)", _trips),
    tables.median("epoch (s)", "time_per_epoch_s", significant),
    tables.median("examples/s", "throughput_examples_per_s", significant),
    tables.RUNS_COLUMN,
    tables.FLAGGED_COLUMN,
)
_IDLENESS: tuple[tables.GroupColumn, ...] = (
    *_NAMES,
    tables.median("idle", "idle_ratio", _share),
    ("computing (ms)", _computing),
    tables.median("push (ms)", "push_s", ms),
    tables.median("pull (ms)", "pull_s", ms),
    tables.median("rank's core", "cpu_ratio", percent),
    tables.median("server's core", "server_cpu_ratio", percent),
)
_ACCURACIES: tuple[tables.GroupColumn, ...] = (
    *_NAMES,
    ("updates", _updates),
    tables.median("accuracy", "accuracy", percent),
    tables.least_to_most("accuracy", percent),
    tables.median("training loss", "training_loss", significant),
    tables.median("test loss", "test_loss", significant),
    tables.STALENESS_COLUMN,
)


def time_figures(lines: ServerLines) -> list[Figure]:
    """Time per epoch and the share of a step that is computing, by delay."""
    return [
        _figure(
            "time per epoch",
            "Time per epoch against one-way delay, a line for each strategy.",
            ChartAxis(title="time per epoch", write=display.duration),
            _by_strategy(lines, lambda point: point.values_of("time_per_epoch_s")),
        ),
        _figure(
            "not idle: a step's share of computing",
            "Share of a step in which a rank computes, against one-way delay.",
            ChartAxis(
                title="computing", write=lambda ratio: display.percent(ratio, 2), is_log=True
            ),
            _by_strategy(lines, _computing_shares),
        ),
    ]


def waiting_figure(lines: ServerLines) -> Figure:
    """How many times as long as an asynchronous step a synchronous one takes, by delay."""
    ratios_of = lines.waiting_ratios
    equal = [Mark(x=delay_s, y=1.0) for delay_s in (*list(ratios_of)[:1], *list(ratios_of)[-1:])]
    return _figure(
        "a synchronous step, in asynchronous ones",
        "Synchronous over asynchronous step time against one-way delay.",
        ChartAxis(title="times as long"),
        [
            values_series("synchronous / asynchronous", ratios_of, style=3),
            ChartSeries(name="equally long", marks=equal, has_dots=False, style=_STYLES[ALONE]),
        ],
    )


def accuracy_figure(lines: ServerLines) -> Figure:
    """Accuracy after the same examples by delay, and what one machine reaches, as level lines."""
    ends_s = (lines.delays_s[0], lines.delays_s[-1])
    levels = []
    for strategy, style in ((SYNC, _STYLES[ALONE]), (ASYNC, 4)):
        alone = lines.alone_like(strategy)
        accuracy = alone.median_of("accuracy") if alone else None
        if alone is not None and accuracy is not None:
            levels.append(level(_name(alone), y=accuracy, x=ends_s, style=style))
    return _figure(
        "accuracy after the same examples",
        "Accuracy against one-way delay, beside one machine with as large updates.",
        ChartAxis(title="accuracy", write=display.percent),
        [*_by_strategy(lines, lambda point: point.values_of("accuracy")), *levels],
    )


def _figure(title: str, summary: str, y: ChartAxis, series: Sequence[ChartSeries]) -> Figure:
    x = ChartAxis(title="one-way delay", write=display.duration)
    return Figure(title=title, summary=summary, x=x, y=y, series=series)


def _by_strategy(
    lines: ServerLines, values: Callable[[RunGroup], Sequence[float]]
) -> list[ChartSeries]:
    return [
        values_series(
            _STRATEGY_NAMES[strategy],
            {delay_s: values(point) for delay_s, point in line.items()},
            style=_STYLES[strategy],
        )
        for strategy, line in lines.gangs.items()
    ]


def _computing_shares(point: RunGroup) -> list[float]:
    """Return what is not idle: a share near 1 has no interval that may not exceed it."""
    return [1 - ratio for ratio in point.values_of("idle_ratio") if ratio < 1]


def claimed_values(lines: ServerLines) -> dict[str, list[Placed]]:
    """Return the medians that the claims are about, by the name of the value."""
    points, alone = lines.points, lines.alone_like(ASYNC)
    fresh = [
        (p, group) for p in lines.gangs.get(ASYNC, {}).values() for group in (p, alone) if alone
    ]
    found = {
        "step_time_s": [p.placed("step_time_s", _CLAIM_AXES) for p in points],
        "computing_ratio": [
            placed_of(_computing_shares(p), {axis: p.first[axis] for axis in _CLAIM_AXES})
            for p in points
        ],
        "waiting_ratio": [
            placed_of(values, {"one_way_delay_s": delay_s})
            for delay_s, values in lines.waiting_ratios.items()
        ],
        "accuracy": [_placed_accuracy(p, p, lines.alone_like(SYNC)) for p in points],
        # Beside each asynchronous point one machine, which is the same at every delay.
        "accuracy_by_update": [_placed_accuracy(g, p, alone) for p, g in fresh if g],
    }
    return {name: [one for one in values if one] for name, values in found.items()}


def _placed_accuracy(group: RunGroup, where: RunGroup, base: RunGroup | None) -> Placed | None:
    """Place the accuracy of a group where another one stands, in terms of one machine's.

    Seed by seed, since seeds differ by more than strategies do; as it is, where no such machine was
    measured.
    """
    relative = ratios(group, base, "accuracy") if base else []
    at: Coordinates = {
        "strategy": group.first["strategy"] or "",
        "one_way_delay_s": where.one_way_delay_s,
    }
    return placed_of(relative or [v for v in group.values_of("accuracy") if v > 0], at)


SERVERS = Study(
    name="servers",
    summary="parameter servers that wait for the slowest rank, and that do not, at up to 200 ms",
    place=LabHosts(3),
    page_file="studies/servers.md",
    page=servers_page,
)
