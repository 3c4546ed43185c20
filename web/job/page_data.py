"""Collects the data for the page of a job from the store. Reads only."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from farm.charts.job.reading import ChartSelection, timed_window
from farm.configuration.axes import AXES, STRATEGY, spec_values
from farm.configuration.axis import Axis, AxisKind, Value
from farm.configuration.spec import JobSpec
from farm.configuration.words import setup_words
from farm.errors import InvalidSpec, NotFound
from farm.gang.lifecycle import FINAL_JOB_STATES
from farm.measuring.aggregate import aggregate
from farm.measuring.precision import measured_repetition
from farm.measuring.quantities import QUANTITIES_BY_NAME
from farm.messages.trainer_lines import Epoch
from farm.processes.cache import Cache
from farm.store.measurements.neighbours import Neighbour, neighbours_of, repetitions_of
from farm.store.series.sample_ranges import extent
from farm.store.series.series import last_epochs
from farm.store.sweeps.jobs import JobHistory, ranks_of
from farm.store.tables import AttemptRow, RankRow
from farm.values.codec import from_json
from web.job.charts import JobCharts, job_charts
from web.job.network import Network, network_of
from web.job.ranks import RankCard, card, chosen_ranks
from web.job.step_profile import Shares, rank_shares, step_shares
from web.setup_text import size_words

_RANKS_READ = 256
_RANKS_LISTED = 64
_EPOCHS_LISTED = 50
_REPETITIONS_LISTED = 50
# The last reports of ranks come after the end; whose agent is gone by then sends none.
_LAST_REPORTS = dt.timedelta(minutes=2)
_MOST_OF_AN_AXIS = 12
# In the order in which a page has them.
_COMPARED_AXES = (
    *(axis for axis in AXES if axis.is_of_work),
    STRATEGY,
    *(axis for axis in AXES if axis.kind in (AxisKind.SETUP, AxisKind.LINK, AxisKind.PROFILE)),
)
_COMPARED_QUANTITIES = (
    QUANTITIES_BY_NAME["step_time_s"],
    QUANTITIES_BY_NAME["throughput_examples_per_s"],
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The part of an attempt that the reader chose; None: the page's default."""

    attempt: int | None = None
    ranks: str | None = None
    from_s: int | None = None
    to_s: int | None = None

    @property
    def is_narrowed(self) -> bool:
        """Whether ranks or seconds were chosen."""
        return (self.ranks, self.from_s, self.to_s) != (None, None, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownAttempt:
    """One attempt. `most_ranks`: how many may be drawn at once; `ranks`: its first ranks."""

    attempt: AttemptRow
    ranks: Sequence[RankCard]
    rank_count: int
    charts: JobCharts
    drawn: tuple[int, ...]
    most_ranks: int
    network: Network | None
    epochs: Sequence[Epoch]
    rows: Sequence[RankRow]
    is_told: bool

    @property
    def rank_shares(self) -> list[Shares]:
        """Return where the time of a step goes on each rank."""
        return rank_shares(self.ranks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The measurements of a configuration that differs only in `axis`, summed up as a cell.

    The ratios are its value over the job's; None where either was not measured. `job_id` is the
    latest that counts.
    """

    axis: str
    value: str
    job_id: int
    repetition_count: int
    step_time_s: float | None
    step_ratio: float | None
    throughput_examples_per_s: float | None
    throughput_ratio: float | None
    is_disturbed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class JobComparison:
    """Repetitions are rows of `farm.store.measurements.neighbours`."""

    repetitions: Sequence[Any]
    others: Sequence[Compared]


def shown_attempt(
    session: Session,
    drawings: Cache,
    story: JobHistory,
    spec: JobSpec,
    selection: Selection,
) -> ShownAttempt | None:
    """Return the data of the requested attempt, or of the last; None if there is none.

    Raises:
        NotFound: there is no such attempt.
        InvalidSpec: the ranks or seconds cannot be shown.
    """
    attempt = _chosen(story, selection.attempt)
    if attempt is None:
        return None
    rows, count = ranks_of(session, attempt.id, limit=_RANKS_READ)
    cards = [card(row) for row in rows[:_RANKS_LISTED]]
    drawn, most = chosen_ranks(selection.ranks, cards, span_s=_span_s(session, attempt, selection))
    is_told = all(one.has_ended for one in cards)
    return ShownAttempt(
        attempt=attempt,
        ranks=cards,
        rank_count=count,
        charts=job_charts(
            session,
            drawings,
            attempt,
            ChartSelection(
                ranks=drawn,
                servers=spec.server_placement if spec.server_count else None,
                training_count=spec.training_agent_count,
                from_s=selection.from_s,
                to_s=selection.to_s,
            ),
            timed_window=timed_window(rows[0] if rows and rows[0].rank == 0 else None),
            is_told=is_told,
        ),
        drawn=drawn,
        most_ranks=most,
        network=network_of(rows[:_RANKS_LISTED], spec.network),
        epochs=last_epochs(session, attempt.id, rank=0, limit=_EPOCHS_LISTED),
        rows=rows,
        is_told=is_told,
    )


def comparison(session: Session, story: JobHistory, spec: JobSpec) -> JobComparison:
    """Return the measurements that the job is compared with."""
    own = story.measurement
    neighbours = neighbours_of(session, spec, fingerprint=own.fingerprint if own else None)
    return JobComparison(
        repetitions=repetitions_of(session, story.job, limit=_REPETITIONS_LISTED),
        others=compare_with_neighbours(
            spec,
            neighbours,
            step_time_s=own.step_time_s if own else None,
            throughput_examples_per_s=own.throughput_examples_per_s if own else None,
        ),
    )


def gang_shares(story: JobHistory) -> Shares | None:
    """Return where the time of a step goes, over the whole gang."""
    own = story.measurement
    if own is None:
        return None
    return step_shares(
        "all ranks",
        step_s=own.profiled_step_time_s,
        compute_s=own.compute_s,
        communication_s=own.communication_s,
    )


def may_change(story: JobHistory, attempt: ShownAttempt | None, *, now: dt.datetime) -> bool:
    """Tell whether the page may still change by itself."""
    if story.job.state not in FINAL_JOB_STATES:
        return True
    ended_at = attempt.attempt.ended_at if attempt is not None else None
    is_recent = ended_at is not None and now - ended_at < _LAST_REPORTS
    return attempt is not None and not attempt.is_told and is_recent


def spec_of(story: JobHistory) -> JobSpec:
    """Return what is measured."""
    return from_json(JobSpec, story.job.spec)


def _chosen(story: JobHistory, number: int | None) -> AttemptRow | None:
    if number is None:
        return story.attempts[-1] if story.attempts else None
    for attempt in story.attempts:
        if attempt.number == number:
            return attempt
    raise NotFound(f"attempt {number} of job {story.job.id} does not exist")


def _span_s(session: Session, attempt: AttemptRow, selection: Selection) -> float:
    """Return about how many seconds the charts cover, from those of rank 0."""
    found = extent(session, attempt, [0])
    begin_s = selection.from_s or 0
    if selection.to_s is not None and selection.to_s < begin_s:
        raise InvalidSpec("to_s", selection.to_s, f"a second not before from_s, {begin_s}")
    end_s = 0 if found is None else found[1]
    if selection.to_s is not None:
        end_s = min(end_s, selection.to_s)
    return float(max(1, end_s - begin_s))


@dataclass(frozen=True, slots=True)
class _ComparedCell:
    axis: Axis
    key: Value
    value: str
    rows: list[Neighbour]


def compare_with_neighbours(
    spec: JobSpec,
    neighbours: Sequence[Neighbour],
    *,
    step_time_s: float | None,
    throughput_examples_per_s: float | None,
) -> list[Compared]:
    """Group neighbours, the latest first, into configurations, and compare them with the job."""
    own = spec_values(spec)
    cells: dict[object, _ComparedCell] = {}
    for row in neighbours:
        axis, key, value = _difference(own, row)
        # Kinds of hardware and of emulators stay apart, as everywhere.
        setup = tuple(setup_words(row.values))
        identity = (axis, key, row.values["strategy"], setup, row.network, row.fingerprint)
        cells.setdefault(identity, _ComparedCell(axis, key, value, [])).rows.append(row)
    found: list[Compared] = []
    for axis in _COMPARED_AXES:
        of_axis = [cell for cell in cells.values() if cell.axis == axis]
        latest = of_axis[:_MOST_OF_AN_AXIS]
        # Not limited is more than any limit.
        latest.sort(key=lambda cell: (isinstance(cell.key, str), cell.key is None, cell.key or 0))
        found += [_compared(cell, step_time_s, throughput_examples_per_s) for cell in latest]
    return found


def _compared(
    cell: _ComparedCell, step_time_s: float | None, throughput_examples_per_s: float | None
) -> Compared:
    found = aggregate(
        cell.rows, lambda row: measured_repetition(row.job_id, row), quantities=_COMPARED_QUANTITIES
    )
    median_s, throughput = (found.medians[quantity.name] for quantity in _COMPARED_QUANTITIES)
    return Compared(
        axis=cell.axis.title.lower(),
        value=cell.value,
        job_id=found.counted[0].job_id,
        repetition_count=len(found.counted),
        step_time_s=median_s,
        step_ratio=median_s / step_time_s if median_s and step_time_s else None,
        throughput_examples_per_s=throughput,
        throughput_ratio=throughput / throughput_examples_per_s
        if throughput is not None and throughput_examples_per_s
        else None,
        is_disturbed=len(found.disturbed) > len(found.set_aside),
    )


def _difference(own: Mapping[str, Value], row: Neighbour) -> tuple[Axis, Value, str]:
    """Return the axis in which a neighbour differs, its value there, and as it is written."""
    axis = next(
        (one for one in _COMPARED_AXES if row.values[one.field] != own[one.field]),
        _COMPARED_AXES[0],
    )
    value = row.values[axis.field]
    strategy = str(row.values["strategy"] or "unnamed")
    if axis is STRATEGY:
        text = ", ".join([strategy, *setup_words(row.values)])
        return axis, text, text
    if axis.name != "world_size":
        is_said = axis.is_number and value is not None
        return axis, value, axis.phrase_of(value) if is_said else axis.text(value)
    machines = size_words(row.values)
    is_other = row.values["strategy"] != own["strategy"]
    return axis, value, f"{machines}, {strategy}" if is_other else machines
