"""Writes groups of runs as Markdown tables, column by column. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from farm.studies.run_groups import RunGroup
from farm.studies.text import MISSING, delay_ms, ms, percent, significant, span, table

_Row = TypeVar("_Row")
_Write = Callable[[float | None], str]
GroupColumn = tuple[str, Callable[[RunGroup], str]]


def table_of(rows: Iterable[_Row], columns: Sequence[tuple[str, Callable[[_Row], str]]]) -> str:
    """Write a table with a line for each row."""
    return table(
        [title for title, _ in columns],
        [[write(row) for _, write in columns] for row in rows],
    )


def median(title: str, column: str, write: _Write) -> GroupColumn:
    """Return the column of the medians of what was measured."""
    return title, lambda group: write(group.median_of(column))


def mean(title: str, column: str, write: _Write) -> GroupColumn:
    """Return the column of the means of what was measured."""
    return title, lambda group: write(group.mean_of(column))


def least_to_most(column: str, write: _Write) -> GroupColumn:
    """Return the column of the ends of what was measured."""

    def cell(group: RunGroup) -> str:
        ends = group.span_of(column)
        return span(map(write, ends)) if ends else MISSING

    return "least to most", cell


def interval(column: str, write: _Write) -> GroupColumn:
    """Return the column of the medians' 95 % intervals."""

    def cell(group: RunGroup) -> str:
        ends = group.interval_of(column)
        return f"{write(ends[0])} to {write(ends[1])}" if ends else MISSING

    return "95 % interval", cell


def _staleness(group: RunGroup) -> str:
    """Write how many updates of others came in between, on average and at most."""
    average, ends = group.mean_of("staleness_mean"), group.span_of("staleness_max")
    if average is None or ends is None:
        return MISSING
    return f"{significant(average)} (at most {ends[1]:.0f})"


def _step_time(group: RunGroup) -> str:
    half = percent(group.half_width_ratio("step_time_s"))
    return f"{ms(group.median_of('step_time_s'))} ± {half}"


def _delay(group: RunGroup) -> str:
    return delay_ms(group.one_way_delay_s) if group.has_network else MISSING


MODEL_COLUMN: GroupColumn = "model", lambda group: f"`{group.first['model']}`"
STRATEGY_COLUMN: GroupColumn = "strategy", lambda group: f"`{group.first['strategy'] or MISSING}`"
HOSTS_COLUMN: GroupColumn = "hosts", lambda group: str(group.world_size)
DELAY_COLUMN: GroupColumn = "delay (ms)", _delay
STALENESS_COLUMN: GroupColumn = "staleness", _staleness
STEP_TIME_COLUMN: GroupColumn = "step time (ms)", _step_time
RUNS_COLUMN: GroupColumn = "runs", lambda group: str(len(group.runs))
FLAGGED_COLUMN: GroupColumn = (
    "flagged",
    lambda group: str(sum(bool(run.flags) for run in group.runs)),
)
