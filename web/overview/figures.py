"""Charts of the farm: jobs finished per hour, and drift of an agent's machine.

Pure: turns summaries from the store into figures.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence

from farm.charts.chart import ChartAxis, ChartSeries, Figure, Mark
from farm.measuring.control_run import ControlRun
from farm.statistics import quantile
from farm.store.agents.control_runs import AgentRun
from farm.store.dashboard import FinishedHour
from farm.text.display import count, deviation, duration
from farm.text.plurals import counted

# From how long a time on in which unit it is written.
_UNITS = ((2 * 86_400.0, 86_400.0, "days"), (2 * 3600.0, 3600.0, "hours"), (0.0, 60.0, "minutes"))
_LEAST_RUNS = 2  # one alone has nothing to drift from
_MOST_COUNTED = 8  # hours that are each named on the axis


def throughput_figure(hours: Sequence[FinishedHour]) -> Figure | None:
    """Return how many jobs finished in each hour; None where there is no hour before this one."""
    if len(hours) < 2:
        return None
    least, most = min(h.job_count for h in hours), max(h.job_count for h in hours)
    series = [_hourly("finished", hours, lambda hour: hour.job_count)]
    if any(hour.failed_count for hour in hours):
        series.append(_hourly("of them failed", hours, lambda hour: hour.failed_count))
    return Figure(
        title="Jobs finished in an hour",
        summary=f"from {least} to {most} in the last {len(hours)} hours, "
        f"{hours[-1].job_count} in the last one",
        x=ChartAxis(title="hours ago", write=_ago, is_counted=len(hours) <= _MOST_COUNTED),
        y=ChartAxis(title="jobs", write=count),
        series=series,
    )


def drift_figure(runs: Sequence[AgentRun], *, now: dt.datetime) -> Figure | None:
    """Return how each control run differs from the median of those like it; None of too few.

    `runs`: the oldest first. Those under other circumstances are compared among themselves.
    """
    alike: dict[tuple[int, str | None], list[AgentRun]] = {}
    for run in runs:
        alike.setdefault(run.circumstances, []).append(run)
    groups = [group for group in alike.values() if len(group) >= _LEAST_RUNS]
    if not groups:
        return None
    span_s = max(0.0, *((now - group[0].at).total_seconds() for group in groups))
    unit_s, unit = next((unit_s, name) for least_s, unit_s, name in _UNITS if span_s >= least_s)
    series = [
        ChartSeries(
            name=_circumstances(group[0], runs[-1].kind), marks=_marks(group, now, unit_s=unit_s)
        )
        for group in groups
    ]
    deviations = [mark.y for one in series for mark in one.marks]
    return Figure(
        title="Control runs against their median",
        summary=f"{counted(len(deviations), 'run')} from {deviation(min(deviations))} "
        f"to {deviation(max(deviations))}",
        x=ChartAxis(title=f"{unit} ago", write=_ago),
        y=ChartAxis(title="Time against the median", write=deviation),
        series=series,
    )


def latest_drift(runs: Sequence[AgentRun]) -> ControlRun | None:
    """Return the last control run with those before it that it may be compared with."""
    if not runs:
        return None
    last = runs[-1]
    past_s = [r.control_s for r in reversed(runs[:-1]) if r.circumstances == last.circumstances]
    return ControlRun(control_s=last.control_s, past_s=tuple(past_s))


def _hourly(
    name: str, hours: Sequence[FinishedHour], read: Callable[[FinishedHour], int]
) -> ChartSeries:
    marks = []
    for hour in hours:
        when = "the last hour" if hour.hours_ago == 0 else f"{hour.hours_ago} h before"
        marks.append(
            Mark(x=-float(hour.hours_ago), y=float(read(hour)), note=f"{when}: {read(hour)}")
        )
    return ChartSeries(name=name, marks=marks)


def _marks(group: Sequence[AgentRun], now: dt.datetime, *, unit_s: float) -> list[Mark]:
    median_s = quantile(sorted(run.control_s for run in group), 0.5)
    marks = []
    for run in group:
        ratio = run.control_s / median_s - 1.0 if median_s > 0 else 0.0
        marks.append(
            Mark(
                x=-(now - run.at).total_seconds() / unit_s,
                y=ratio,
                note=f"attempt {run.token}: {duration(run.control_s)}, {deviation(ratio)}",
            )
        )
    return marks


def _circumstances(run: AgentRun, latest_kind: str | None) -> str:
    others = run.neighbour_count - 1
    where = "alone of its gang on the machine" if others == 0 else f"beside {others} of its gang"
    return where if run.kind == latest_kind else f"{where}, other hardware"


def _ago(value: float | None) -> str:
    # Towards the past numbers become smaller, as on every axis of time.
    return "" if value is None else ("now" if value == 0 else f"{abs(value):g}")
