"""Reads the charts of one attempt from the store, and caches them briefly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import sqlalchemy as sa
from sqlalchemy.orm import Session

from farm.charts.histogram import Histogram
from farm.charts.job.reading import ChartSelection, read_job
from farm.charts.job.steps import StepSummary
from farm.charts.timelines import Shade, TimelineFigure
from farm.gang.lifecycle import ACTIVE_ATTEMPT_STATES
from farm.processes.cache import Cache
from farm.store.engine import reading
from farm.store.tables import AttemptRow
from web.drawing.rendered import RenderedFigure, drawn

_KEPT_RUNNING_S = 1.0
_KEPT_OVER_S = 60.0
# Of the time that one point stands for: a chart of a day looks no different a few seconds later.
KEPT_OF_WIDTH = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCharts:
    """`width_ticks`: the seconds of one range in the ranks' charts."""

    ranks: Sequence[RenderedFigure[TimelineFigure]]
    steps: RenderedFigure[TimelineFigure] | None
    histogram: RenderedFigure[Histogram] | None
    summary: StepSummary | None
    shades: Sequence[Shade]
    width_ticks: int

    @property
    def by_key(self) -> dict[str, RenderedFigure[TimelineFigure]]:
        """Return the ranks' charts by their keys."""
        return {one.figure.key: one for one in self.ranks}


def job_charts(
    session: Session,
    drawings: Cache,
    attempt: AttemptRow,
    shown: ChartSelection,
    *,
    timed_window: tuple[float, float] | None,
    is_told: bool,
) -> JobCharts:
    """Return an attempt's charts. `is_told`: every rank has sent its last report."""
    is_over = is_told and attempt.state not in ACTIVE_ATTEMPT_STATES
    return drawings.for_a_while(
        (attempt.id, shown, timed_window, is_over),
        lambda: _draw(session, attempt, shown, timed_window),
        keep_s=lambda made: (
            _KEPT_OVER_S if is_over else max(_KEPT_RUNNING_S, KEPT_OF_WIDTH * made.width_ticks)
        ),
        renew=partial(_draw_again, session.connection().engine, attempt, shown, timed_window),
    )


def _draw_again(
    engine: sa.Engine,
    attempt: AttemptRow,
    shown: ChartSelection,
    timed_window: tuple[float, float] | None,
) -> JobCharts:
    with reading(engine) as session:
        return _draw(session, attempt, shown, timed_window)


def _draw(
    session: Session,
    attempt: AttemptRow,
    shown: ChartSelection,
    timed_window: tuple[float, float] | None,
) -> JobCharts:
    read = read_job(session, attempt, shown, timed_window=timed_window)
    return JobCharts(
        ranks=[drawn(one) for one in (*read.ranks, *read.roles)],
        steps=None if read.steps is None else drawn(read.steps),
        histogram=None if read.histogram is None else drawn(read.histogram),
        summary=read.summary,
        shades=read.shades,
        width_ticks=read.width_ticks,
    )
