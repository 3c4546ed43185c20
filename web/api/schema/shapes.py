"""Converts rows of the store to JSON, with the glossary's names and base units."""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Mapping, Sequence
from typing import TypeVar, cast

from farm.cells.history import CellHistory
from farm.charts.chart import ChartAxis, Figure, heights, ticks
from farm.configuration.spec import spec_json
from farm.store.agents.agent_status import agent_status, is_live
from farm.store.dashboard import LeasedRank
from farm.store.measurements.measurements import measurement_json
from farm.store.notifications import LoggedDelivery
from farm.store.result_tables import MeasurementRow
from farm.store.sweeps.jobs import JobDetail
from farm.store.sweeps.sweeps import SweepSummary
from farm.store.tables import AgentRow, JobRow
from web.api.schema import answers, sweep_answers

_Item = TypeVar("_Item", bound=Mapping[str, object])
_Answer = TypeVar("_Answer")


def listed(items: Sequence[_Item], *, page_size: int, key: str = "id") -> dict[str, object]:
    """Wrap one page of a list, given one item more if there is a next page.

    The cursor is the last key, so new rows neither repeat nor hide an item.
    """
    page = list(items[:page_size])
    return {"items": page, "next": str(page[-1][key]) if len(items) > page_size else None}


def instant(at: dt.datetime | None) -> str | None:
    """Write an instant in UTC, as RFC 3339 has it."""
    return None if at is None else at.astimezone(dt.UTC).isoformat().replace("+00:00", "Z")


def _columns(kind: type[_Answer], row: object, **others: object) -> _Answer:
    """Write the columns of a row that an answer's type names, beside its other fields."""
    written: dict[str, object] = {}
    for name in kind.__annotations__:
        value = others[name] if name in others else getattr(row, name)
        if isinstance(value, enum.Enum):
            value = value.value
        written[name] = instant(value) if isinstance(value, dt.datetime) else value
    return cast(_Answer, written)


def sweep(summary: SweepSummary) -> sweep_answers.Sweep:
    """Write a sweep of a list."""
    written = {**summary.to_json(), "created_at": instant(summary.created_at)}
    return cast(sweep_answers.Sweep, written)


def notification(one: LoggedDelivery) -> sweep_answers.Notification:
    """Write a message of a list."""
    written = {**one.to_json(), "at": instant(one.at), "last_at": instant(one.last_at)}
    return cast(sweep_answers.Notification, written)


def job(row: JobRow) -> answers.Job:
    """Write a job of a list."""
    return _columns(answers.Job, row, spec=spec_json(row.spec))


def job_with_story(detail: JobDetail, *, waits_because: str | None) -> answers.JobStory:
    """Write a job with its events, its attempts and their ranks, and its measurement."""
    found = detail.measurement
    return {
        **job(detail.job),
        "sweep_name": detail.sweep_name,
        "story": [_columns(answers.Event, event) for event in detail.events],
        "attempts": [
            _columns(
                answers.Attempt,
                one.attempt,
                ranks=[_columns(answers.Rank, rank) for rank in one.ranks],
            )
            for one in detail.attempts
        ],
        "measurement": None if found is None else measurement(found),
        "waits_because": waits_because,
    }


def cell_history(found: CellHistory) -> sweep_answers.HistoryOfCell:
    """Write the history of a cell, the newest point first."""
    written = cast(sweep_answers.HistoryOfCell, found.to_json())
    for item, point in zip(written["items"], reversed(found.points), strict=True):
        item["measured_at"] = instant(point.measured_at)
    return written


def agent(
    row: AgentRow, served: LeasedRank | None, *, now: dt.datetime, lease_s: float
) -> answers.Agent:
    """Write an agent with its own report and its lease."""
    beat_at = row.heartbeat_at
    return _columns(
        answers.Agent,
        row,
        status=agent_status(row, now=now, lease_s=lease_s).value,
        is_live=is_live(row, now=now, lease_s=lease_s),
        heartbeat_age_s=None if beat_at is None else (now - beat_at).total_seconds(),
        job_id=served.job_id if served else None,
        rank=served.rank if served else None,
    )


def figure(drawn: Figure) -> sweep_answers.DescribedFigure:
    """Write a figure with everything needed to draw it."""
    return {
        "title": drawn.title,
        "summary": drawn.summary,
        "x": _axis(drawn.x, [mark.x for mark in drawn.marks]),
        "y": _axis(drawn.y, heights(drawn.marks)),
        "series": [{"name": one.name, "marks": list(one.marks)} for one in drawn.series],
    }


def _axis(axis: ChartAxis, values: Sequence[float]) -> sweep_answers.FigureAxis:
    return {
        "title": axis.title,
        "is_log": axis.is_log,
        "is_counted": axis.is_counted,
        "ticks": [{"value": tick, "text": axis.write(tick)} for tick in ticks(axis, values)],
    }


def measurement(row: MeasurementRow) -> answers.Measurement:
    """Write a measurement: every column, and whether anything disturbed it."""
    return {**measurement_json(row), "created_at": instant(row.created_at)}
