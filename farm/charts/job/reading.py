"""Reads the data for all charts of one attempt from the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from farm.charts.histogram import Histogram
from farm.charts.job.figures import rank_timelines, role_timelines
from farm.charts.job.steps import (
    StepSummary,
    phases,
    step_histogram,
    step_points,
    step_summary,
    step_timeline,
    steps_over,
    timed_steps,
)
from farm.charts.timelines import Shade, TimelineFigure
from farm.configuration.spec import ServerPlacement
from farm.store.series.sample_ranges import (
    CHARTED,
    RoleSeries,
    ranges_by_rank,
    roles_apart,
    roles_collocated,
)
from farm.store.series.step_ranges import step_series, steps_within
from farm.store.tables import AttemptRow, RankRow

# Of all lines of a page together, so that a wide gang does not make it heavy.
_MOST_POINTS = 16_000
_MOST_RANGES = 1000  # of a line: each has its least and its most, so 2,000 points
_FEWEST_RANGES = 150
_MOST_STEP_POINTS = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartSelection:
    """The selection for the charts: ranks, first and last second.

    `servers`: where they are, of a gang that has any; `training_count`: its agents that train.
    """

    ranks: tuple[int, ...]
    servers: ServerPlacement | None = None
    training_count: int = 1
    from_s: int | None = None
    to_s: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFigures:
    """`ranks`, and by role `roles`, second by second, with the `steps` laid over.

    `width_ticks`: how many seconds one range of the ranks' charts stands for.
    """

    ranks: Sequence[TimelineFigure]
    roles: Sequence[TimelineFigure]
    steps: TimelineFigure | None
    histogram: Histogram | None
    summary: StepSummary | None
    shades: Sequence[Shade]
    width_ticks: int


def timed_window(chief: RankRow | None) -> tuple[float, float] | None:
    """Return from when to when, in seconds after go, the steps were timed; None until it ended."""
    ended: Mapping[str, Any] = (chief.ended if chief is not None else None) or {}
    result, begun_s = ended.get("result"), ended.get("timed_begun_s")
    if result is None or begun_s is None:
        return None
    return begun_s, begun_s + result["timed_window_s"]


def read_job(
    session: Session,
    attempt: AttemptRow,
    shown: ChartSelection,
    *,
    timed_window: tuple[float, float] | None,
) -> JobFigures:
    """Read an attempt's samples and steps, thinned for charts."""
    begin_s, end_s = shown.from_s or 0, shown.to_s
    lines = len(CHARTED) * max(1, len(shown.ranks))
    samples = ranges_by_rank(
        session,
        attempt,
        ranks=shown.ranks,
        max_ranges=min(_MOST_RANGES, max(_FEWEST_RANGES, _MOST_POINTS // (2 * lines))),
        first_tick=begin_s,
        last_tick=end_s,
    )
    series = step_series(session, attempt.id, rank=0, max_ranges=_MOST_STEP_POINTS)
    points = step_points(series, max_points=_MOST_STEP_POINTS)
    shades = phases(points, timed_window=timed_window)
    visible = points
    if shown.from_s is not None or end_s is not None:
        within = steps_within(
            session,
            attempt.id,
            series,
            rank=0,
            max_ranges=_MOST_STEP_POINTS,
            from_s=begin_s,
            to_s=end_s,
        )
        visible = step_points(within, max_points=_MOST_STEP_POINTS)
    timed = timed_steps(series)
    return JobFigures(
        ranks=rank_timelines(samples, visible, shades=shades),
        roles=role_timelines(
            _roles(session, attempt, shown), over=steps_over(points), shades=shades
        ),
        steps=step_timeline(points, timed, shades=shades),
        histogram=step_histogram(timed),
        summary=step_summary(timed),
        shades=shades,
        width_ticks=max((one.width_ticks for one in samples.values()), default=1),
    )


def _roles(session: Session, attempt: AttemptRow, shown: ChartSelection) -> list[RoleSeries]:
    """Return the series by role, of the whole attempt; nothing of a gang without servers."""
    if shown.servers is None:
        return []
    if shown.servers is ServerPlacement.COLLOCATED:
        return roles_collocated(session, attempt, max_points=_FEWEST_RANGES)
    count = shown.training_count
    return roles_apart(session, attempt, training_count=count, max_points=_FEWEST_RANGES)
