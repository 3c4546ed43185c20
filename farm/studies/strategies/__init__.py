"""The strategies study: all strategies side by side, and its page."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from farm.charts.chart import Bars, BarSeries, ChartAxis
from farm.charts.files.bars import draw_bars
from farm.errors import FarmError
from farm.measuring.measurement import OK
from farm.measuring.study_run import StudyRun
from farm.registry import catalogue
from farm.studies import conditions, tables
from farm.studies.conditions import refuse_other_work
from farm.studies.contracts import Drawing, LabHosts, Page, Study, write_page
from farm.studies.run_groups import RunGroup
from farm.studies.text import MISSING, kb, ms, percent, significant
from farm.text import display
from farm.text.plurals import counted

# By role, as the table beside it.
_PANELS = {
    "step_time_s": ChartAxis(title="step time", write=display.duration),
    "idle_ratio": ChartAxis(title="idle, of a step", write=display.percent),
    "accuracy": ChartAxis(title="accuracy after an epoch", write=display.percent),
}


def strategies_page(runs: Sequence[StudyRun]) -> Page:
    """Make the page and its figure.

    Raises:
        FarmError: there is no run with a time, or the runs are not of the same work.
    """
    refuse_other_work(
        runs,
        *("model", "data set", "batch", "delay", "number of epochs"),
        compares="strategies at one model, data set, batch, delay and number of epochs",
    )
    rows = strategy_rows(runs)
    if not rows:
        raise FarmError("the strategies study has no measured run to show")
    failed = conditions.failures(runs, lambda run: f"`{run['strategy']}`")
    texts = conditions.texts(runs, runs, rows) | {
        "parameters": significant(max(run.parameter_count or 0 for run in runs)),
        "cpu": runs[0].cpu_model or MISSING,
        "date": max(run.measured_at for run in runs).date().isoformat(),
        "findings": conditions.findings(runs, lambda some: _findings(strategy_rows(some))),
        "times": tables.table_of(rows, _TIMES),
        "traffic": tables.table_of([row for row in rows if row.expected_bytes_per_step], _TRAFFIC),
        "failures": f"Without a time: {failed}." if failed else "",
    }
    panels = [_panel(rows, column, axis) for column, axis in _PANELS.items()]
    draw = partial(draw_bars, panels, columns=len(panels), is_lying=True)
    return write_page("strategies", texts, Drawing("strategies", draw))


def _findings(rows: Sequence[RunGroup]) -> list[str]:
    gangs = [row for row in rows if row.world_size > 1]
    lines = []
    if gangs:
        fastest = min(gangs, key=lambda row: row.median_of("step_time_s") or float("inf"))
        slowest = max(gangs, key=lambda row: row.median_of("step_time_s") or 0.0)
        lines.append(
            f"Of the gangs `{fastest.first['strategy']}` ({setting(fastest)}) has the shortest"
            f" step, {ms(fastest.median_of('step_time_s'))} ms, and `{slowest.first['strategy']}`"
            f" ({setting(slowest)}) the longest, {ms(slowest.median_of('step_time_s'))} ms."
        )
    alone = next((row for row in rows if row.first["strategy"] == "single"), None)
    if alone is not None and gangs:
        alone_s = alone.median_of("step_time_s") or float("inf")
        quicker = [row for row in gangs if (row.median_of("step_time_s") or alone_s) < alone_s]
        lines.append(
            f"{len(quicker)} of {len(gangs)} gangs beat one machine alone ({ms(alone_s)} ms) at"
            " this batch, with this model, and with hosts that share cores."
        )
    over = [row.over_expected("sent_bytes_per_step") for row in rows]
    if apart := [abs(ratio) for ratio in over if ratio is not None]:
        lines.append(f"Every rank sends what theory says within {percent(max(apart))}.")
    return lines


def setting(row: RunGroup) -> str:
    """Say what tells this configuration from others of its strategy."""
    first = row.first
    words = [counted(first["world_size"], "rank")]
    if first["server_count"]:
        servers = counted(first["server_count"], "server")
        words.append(f"{servers} {first['server_placement'] or ''}".rstrip())
    if first["replicas_per_rank"] > 1:
        words.append(f"{first['replicas_per_rank']} replicas")
    if first["steps_between_averages"] > 1:
        words.append(f"average every {first['steps_between_averages']} steps")
    return ", ".join(words)


def _over_expected(row: RunGroup) -> str:
    return percent(row.over_expected("sent_bytes_per_step"), is_signed=True)


_NAMES: tuple[tables.GroupColumn, ...] = (tables.STRATEGY_COLUMN, ("setting", setting))
_TIMES: tuple[tables.GroupColumn, ...] = (
    *_NAMES,
    tables.median("step (ms)", "step_time_s", ms),
    tables.least_to_most("step_time_s", ms),
    tables.median("epoch (s)", "time_per_epoch_s", significant),
    tables.mean("idle", "idle_ratio", percent),
    tables.mean("accuracy", "accuracy", percent),
    tables.STALENESS_COLUMN,
)
_TRAFFIC: tuple[tables.GroupColumn, ...] = (
    *_NAMES,
    ("theory (kB)", lambda row: kb(row.expected_bytes_per_step)),
    tables.mean("sent (kB)", "sent_bytes_per_step", kb),
    ("", _over_expected),
    tables.mean("received (kB)", "received_bytes_per_step", kb),
    tables.mean("push (ms)", "push_s", ms),
    tables.mean("pull (ms)", "pull_s", ms),
)


def _panel(rows: Sequence[RunGroup], column: str, axis: ChartAxis) -> Bars:
    """Return a bar for each configuration, with the least and the most of its runs."""
    kinds = {"one machine": False, "several machines": True}
    return Bars(
        title=axis.title,
        summary="the median of the runs, from their least to their most",
        x="strategy",
        y=axis,
        groups=[f"{row.first['strategy'] or '?'}, {setting(row)}" for row in rows],
        series=[
            BarSeries(
                name=name,
                marks=[
                    row.span_mark(column, x=place) if (row.world_size > 1) is gang else None
                    for place, row in enumerate(rows)
                ],
            )
            for name, gang in kinds.items()
        ],
    )


def strategy_rows(runs: Sequence[StudyRun]) -> list[RunGroup]:
    """Return the measured configurations: one machine first, those with servers last."""
    groups: dict[object, list[StudyRun]] = {}
    for run in sorted(runs, key=_order):
        if run.status == OK:
            groups.setdefault(_order(run), []).append(run)
    return [RunGroup(runs=tuple(group)) for group in groups.values()]


def _order(run: StudyRun) -> tuple[int, bool, int, int, str, int, int]:
    names = list(catalogue().strategies)
    return (
        run["world_size"],
        run["server_count"] > 0,
        names.index(run["strategy"]) if run["strategy"] in names else len(names),
        run["server_count"],
        run["server_placement"] or "",
        run["replicas_per_rank"],
        run["steps_between_averages"],
    )


STRATEGIES_STUDY = Study(
    name="strategies",
    summary="every strategy with the same model, data, batch and seed, on up to 3 machines",
    place=LabHosts(3),
    page_file="strategies.md",
    page=strategies_page,
    modules=("torch",),
)
