"""The strategies study: all strategies side by side, and its page."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING

from farm.charts.chart import Bars, BarSeries, ChartAxis, Mark
from farm.charts.files.bars import draw_bars
from farm.configuration.catalogue import GangShape
from farm.errors import FarmError
from farm.measuring.measurement import OK
from farm.measuring.study_run import StudyRun
from farm.registry import catalogue, strategy
from farm.studies import conditions
from farm.studies.conditions import refuse_other_work
from farm.studies.contracts import Drawing, LabHosts, Page, Study
from farm.studies.run_groups import RunGroup
from farm.studies.text import MISSING, kb, listing, ms, percent, significant, span, table
from farm.text import display

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
        "model",
        "data set",
        "batch",
        "delay",
        "number of epochs",
        compares="strategies at one model, data set, batch, delay and number of epochs",
    )
    rows = strategy_rows(runs)
    if not rows:
        raise FarmError("the strategies study has no measured run to show")
    template = Template(files("farm.studies.strategies").joinpath("page.md").read_text())
    text = template.substitute(
        **_conditions(runs),
        findings=conditions.findings(runs, lambda some: _findings(strategy_rows(some))),
        times=_times_table(rows),
        traffic=_traffic_table(rows),
        failures=_failures(runs),
    )
    return Page(text=text, drawings=(Drawing("strategies", partial(_draw_strategies, rows)),))


def _conditions(runs: Sequence[StudyRun]) -> dict[str, str]:
    first = runs[0]
    counts = sorted(len(row.runs) for row in strategy_rows(runs))
    frameworks = sorted({run.framework for run in runs if run.framework})
    return {
        "model": first.model or MISSING,
        "dataset": first.dataset or MISSING,
        "batch": str(first.global_batch_size),
        "parameters": significant(max((r.parameter_count or 0 for r in runs), default=0)),
        "gradients": kb(max((r.gradient_bytes or 0 for r in runs), default=0)),
        "steps": span(
            str(count) for count in sorted({r.timed_step_count for r in runs if r.timed_step_count})
        ),
        "repetitions": span(map(str, counts)),
        "frameworks": listing(frameworks) if frameworks else MISSING,
        "machine": first.cpu_model or MISSING,
        "cores": str(max(run.core_count for run in runs)),
        "date": max(run.measured_at for run in runs).date().isoformat(),
    }


def _findings(rows: Sequence[StrategyRow]) -> list[str]:
    alone = next((row for row in rows if row.strategy == "single"), None)
    gangs = [row for row in rows if row.gang.world_size > 1]
    lines = []
    if gangs:
        fastest = min(gangs, key=lambda row: row.median_of("step_time_s") or float("inf"))
        slowest = max(gangs, key=lambda row: row.median_of("step_time_s") or 0.0)
        lines.append(
            f"Of the gangs `{fastest.strategy}` ({fastest.setting}) has the shortest step,"
            f" {ms(fastest.median_of('step_time_s'))} ms, and `{slowest.strategy}`"
            f" ({slowest.setting}) the longest, {ms(slowest.median_of('step_time_s'))} ms."
        )
    if alone is not None and gangs:
        alone_s = alone.median_of("step_time_s") or float("inf")
        quicker = [row for row in gangs if (row.median_of("step_time_s") or alone_s) < alone_s]
        lines.append(
            f"{len(quicker)} of {len(gangs)} gangs beat one machine alone ({ms(alone_s)} ms) at"
            " this batch, with this model, and with hosts that share cores."
        )
    apart = [abs(row.sent_over_expected) for row in rows if row.sent_over_expected is not None]
    if apart:
        lines.append(f"Every rank sends what theory says within {percent(max(apart))}.")
    return lines


def _times_table(rows: Sequence[StrategyRow]) -> str:
    titles = ("step (ms)", "least to most", "epoch (s)", "idle", "accuracy", "staleness")
    return table(["strategy", "setting", *titles], [[*_names(row), *_times(row)] for row in rows])


def _times(row: StrategyRow) -> list[str]:
    low_high = row.span_of("step_time_s")
    stale_mean, stale_max = row.mean_of("staleness_mean"), row.span_of("staleness_max")
    stale = MISSING
    if stale_mean is not None and stale_max is not None:
        stale = f"{significant(stale_mean)} (at most {stale_max[1]:.0f})"
    return [
        ms(row.median_of("step_time_s")),
        span(map(ms, low_high)) if low_high else MISSING,
        significant(row.median_of("time_per_epoch_s")),
        percent(row.mean_of("idle_ratio")),
        percent(row.mean_of("accuracy")),
        stale,
    ]


def _traffic_table(rows: Sequence[StrategyRow]) -> str:
    shown = []
    for row in rows:
        expected = row.expected_bytes_per_step
        if expected is None:
            continue
        over = row.sent_over_expected
        messages = kb(row.mean_of("received_bytes_per_step"))
        shown.append(
            [
                *_names(row),
                kb(expected),
                kb(row.mean_of("sent_bytes_per_step")),
                MISSING if over is None else percent(over, is_signed=True),
                messages,
                ms(row.mean_of("push_s")),
                ms(row.mean_of("pull_s")),
            ]
        )
    titles = ("theory (kB)", "sent (kB)", "", "received (kB)", "push (ms)", "pull (ms)")
    return table(["strategy", "setting", *titles], shown)


def _names(row: StrategyRow) -> list[str]:
    return [f"`{row.strategy}`", row.setting]


def _failures(runs: Sequence[StudyRun]) -> str:
    failed = sorted({f"`{run.strategy}`: {run.status}" for run in runs if run.status != "ok"})
    return f"Without a time: {listing(failed)}." if failed else ""


def _draw_strategies(rows: Sequence[StrategyRow]) -> Figure:
    """Draw a bar for each configuration, with the least and the most of its runs."""
    shown = [_panel(rows, column, axis) for column, axis in _PANELS.items()]
    return draw_bars(shown, columns=len(shown), is_lying=True)


def _panel(rows: Sequence[StrategyRow], column: str, axis: ChartAxis) -> Bars:
    kinds = {"one machine": False, "several machines": True}
    return Bars(
        title=axis.title,
        summary="the median of the runs, from their least to their most",
        x="strategy",
        y=axis,
        groups=[f"{row.strategy}, {row.setting}" for row in rows],
        series=[
            BarSeries(
                name=name,
                marks=[
                    _mark(row, column, place) if (row.gang.world_size > 1) is is_gang else None
                    for place, row in enumerate(rows)
                ],
            )
            for name, is_gang in kinds.items()
        ],
    )


def _mark(row: StrategyRow, column: str, place: int) -> Mark | None:
    middle, ends = row.median_of(column), row.span_of(column)
    if middle is None or ends is None:
        return None
    return Mark(x=float(place), y=middle, low=ends[0], high=ends[1])


class StrategyRow(RunGroup):
    """The successful runs of one configuration, and what theory says of it."""

    __slots__ = ()

    @property
    def strategy(self) -> str:
        return self.first.strategy or "?"

    @property
    def gang(self) -> GangShape:
        first = self.first
        return GangShape(
            world_size=first.world_size,
            server_count=first.server_count or 0,
            steps_between_averages=first.steps_between_averages or 1,
        )

    @property
    def setting(self) -> str:
        """What tells this configuration from others of its strategy, in words."""
        first = self.first
        words = ["1 rank" if first.world_size == 1 else f"{first.world_size} ranks"]
        if first.server_count:
            servers = "1 server" if first.server_count == 1 else f"{first.server_count} servers"
            words.append(f"{servers} {first.server_placement or ''}".rstrip())
        if (first.replicas_per_rank or 1) > 1:
            words.append(f"{first.replicas_per_rank} replicas")
        if (first.steps_between_averages or 1) > 1:
            words.append(f"average every {first.steps_between_averages} steps")
        return ", ".join(words)

    @property
    def expected_bytes_per_step(self) -> float | None:
        """What the strategy's theory says that one rank sends; None where nothing is sent."""
        gradients = [run.gradient_bytes for run in self.runs if run.gradient_bytes]
        if not gradients:
            return None
        return strategy(self.strategy).traffic(self.gang, gradients[0]).bytes or None

    @property
    def sent_over_expected(self) -> float | None:
        """How much more than the theory a rank sent, as a ratio; below 0: less."""
        sent, expected = self.mean_of("sent_bytes_per_step"), self.expected_bytes_per_step
        return None if sent is None or expected is None else sent / expected - 1


def strategy_rows(runs: Sequence[StudyRun]) -> list[StrategyRow]:
    """Return the measured configurations in the order in which they were first asked for."""
    groups: dict[object, list[StudyRun]] = {}
    for run in sorted(runs, key=_order):
        groups.setdefault(_order(run), [])
        if run.status == OK:
            groups[_order(run)].append(run)
    return [StrategyRow(runs=tuple(group)) for group in groups.values() if group]


# One machine first, then what exchanges without servers, then what has some; else as registered.
def _order(run: StudyRun) -> tuple[int, bool, int, int, str, int, int]:
    names = list(catalogue().strategies)
    return (
        run.world_size,
        (run.server_count or 0) > 0,
        names.index(run.strategy) if run.strategy in names else len(names),
        run.server_count or 0,
        run.server_placement or "",
        run.replicas_per_rank or 1,
        run.steps_between_averages or 1,
    )


STRATEGIES_STUDY = Study(
    name="strategies",
    summary="every strategy with the same model, data, batch and seed, on up to 3 machines",
    place=LabHosts(3),
    page_file="strategies.md",
    page=strategies_page,
    modules=("torch",),
)
