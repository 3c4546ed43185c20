"""Everything that is drawn of one attempt, read from the store and kept for a moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import sqlalchemy as sa
from sqlalchemy.orm import Session

from farm.core.lifecycle import ACTIVE_ATTEMPT_STATES
from farm.core.spec import ServerPlacement
from farm.figures.job_figures import rank_timelines
from farm.figures.role_figures import role_timelines
from farm.figures.step_figures import (
    StepSummary,
    phases,
    step_histogram,
    step_summary,
    step_timeline,
    timed_steps,
)
from farm.figures.step_points import step_points
from farm.figures.timelines import Shade
from farm.store.engine import reading
from farm.store.role_series import RoleSeries, roles_apart, roles_collocated
from farm.store.sample_ranges import CHARTED, ranges_by_rank
from farm.store.step_ranges import step_series, steps_within
from farm.store.tables import Attempt
from web import histogram_drawing, timeline_svg
from web.histogram_drawing import DrawnHistogram
from web.kept import Kept
from web.timeline_svg import DrawnTimeline

# Of all lines of a page together, so that a wide gang does not make it heavy.
_MOST_POINTS = 16_000
_MOST_RANGES = 1000  # of a line: each has its least and its most, so 2,000 points
_FEWEST_RANGES = 150
_MOST_STEP_POINTS = 600
_KEPT_RUNNING_S = 1.0
_KEPT_OVER_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What is asked of the charts: which ranks, from which second to which.

    `servers`: where they are, of a gang that has any, and its `world_size`.
    """

    ranks: tuple[int, ...]
    servers: ServerPlacement | None = None
    world_size: int = 1
    from_s: int | None = None
    to_s: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCharts:
    """`width_ticks`: how many seconds one range of the ranks' charts stands for."""

    ranks: Sequence[DrawnTimeline]
    steps: DrawnTimeline | None
    histogram: DrawnHistogram | None
    summary: StepSummary | None
    shades: Sequence[Shade]
    width_ticks: int

    @property
    def by_key(self) -> dict[str, DrawnTimeline]:
        """Return the ranks' charts by their keys."""
        return {one.figure.key: one for one in self.ranks}


def job_charts(
    session: Session,
    drawings: Kept,
    attempt: Attempt,
    shown: Shown,
    *,
    timed_window: tuple[float, float] | None,
    is_told: bool,
) -> JobCharts:
    """Return an attempt's charts. `is_told`: every rank has sent its last report."""
    is_over = is_told and attempt.state not in ACTIVE_ATTEMPT_STATES
    return drawings.for_a_while(
        (attempt.id, shown, timed_window, is_over),
        lambda: _draw(session, attempt, shown, timed_window),
        keep_s=_KEPT_OVER_S if is_over else _KEPT_RUNNING_S,
        renew=partial(_draw_again, session.connection().engine, attempt, shown, timed_window),
    )


def _draw_again(
    engine: sa.Engine,
    attempt: Attempt,
    shown: Shown,
    timed_window: tuple[float, float] | None,
) -> JobCharts:
    with reading(engine) as session:
        return _draw(session, attempt, shown, timed_window)


def _draw(
    session: Session, attempt: Attempt, shown: Shown, timed_window: tuple[float, float] | None
) -> JobCharts:
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
    steps = step_timeline(points, timed, shades=shades)
    times = step_histogram(timed)
    of_ranks = rank_timelines(samples, visible, shades=shades)
    of_roles = role_timelines(_roles(session, attempt, shown), shades=shades)
    return JobCharts(
        ranks=[timeline_svg.drawn(one) for one in (*of_ranks, *of_roles)],
        steps=None if steps is None else timeline_svg.drawn(steps),
        histogram=None if times is None else histogram_drawing.drawn(times),
        summary=step_summary(timed),
        shades=shades,
        width_ticks=max((one.width_ticks for one in samples.values()), default=1),
    )


def _roles(session: Session, attempt: Attempt, shown: Shown) -> list[RoleSeries]:
    """Return the series by role, of the whole attempt; nothing of a gang without servers."""
    if shown.servers is None:
        return []
    if shown.servers is ServerPlacement.COLLOCATED:
        return roles_collocated(session, attempt, max_points=_FEWEST_RANGES)
    return roles_apart(session, attempt, world_size=shown.world_size, max_points=_FEWEST_RANGES)
