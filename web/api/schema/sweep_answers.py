"""Types of the API's answers about sweeps; see `web.api.schema.answers`."""

from __future__ import annotations

from typing import Any

from typing_extensions import TypedDict

from farm.charts.chart import Mark
from farm.configuration.axes import TASK_AXES
from farm.configuration.axis import Axis, Value
from farm.measuring.noise import Disturbance
from farm.recommend.contracts import Option
from farm.values.fields import Amount, Boolean, Name, WholeNumber


class Sweep(TypedDict):
    """A sweep and its progress. `max_job_count`: with the repetitions that may still be added.

    `is_budget_used_up`: then no further job is started. `budget_machine_s` null: no budget.
    """

    id: int
    name: str
    state: str
    is_paused: bool
    budget_machine_s: float | None
    is_budget_used_up: bool
    created_at: str | None
    job_count: int
    max_job_count: int
    finished_count: int
    skipped_count: int
    jobs_by_state: dict[str, int]


class CellResults(TypedDict):
    """What a configuration measured on one kind of hardware.

    `quantities`: the medians of everything that is measured, by the names of measurements.
    `disturbed`: what disturbed repetitions, one entry for each; `set_aside_count` of them do not
    count, since others were not disturbed.
    """

    fingerprint: str | None
    framework: str | None
    repetition_count: int
    step_time_s: float | None
    step_time_low_s: float | None
    step_time_high_s: float | None
    half_width_ratio: float | None
    scaling_efficiency_ratio: float | None
    expected_bytes_per_step: float | None
    outlier_job_ids: list[int]
    disturbed: list[Disturbance]
    set_aside_count: int
    quantities: dict[str, float | None]


class SweepCell(CellResults):
    """A configuration of a sweep over its repetitions, on the kind of hardware with most of them.

    `values`: of every axis, in base units. `other_hardware`: what it measured on other kinds.
    """

    configuration: dict[str, Any]
    values: dict[str, Value]
    state: str
    job_ids: list[int]
    jobs_by_state: dict[str, int]
    target: str | None
    machine_s: float
    other_hardware: list[CellResults]


class FigureTick(TypedDict):
    """A value on an axis, in base units, and its label."""

    value: float
    text: str


class FigureAxis(TypedDict):
    """An axis. `is_counted`: its values are few whole numbers, such as world sizes."""

    title: str
    is_log: bool
    is_counted: bool
    ticks: list[FigureTick]


class FigureSeries(TypedDict):
    """Marks in the order in which a line joins them, in base units, with their intervals."""

    name: str
    marks: list[Mark]


class DescribedFigure(TypedDict):
    """`summary` says in one sentence what the figure shows."""

    title: str
    summary: str
    x: FigureAxis
    y: FigureAxis
    series: list[FigureSeries]


class SweepFigure(TypedDict):
    """`figure` is null, with the reason, where there is nothing to draw."""

    figure: DescribedFigure | None
    reason: str | None


class HistoryItem(CellResults):
    """The measurements of a cell by one sweep, on one kind of hardware and set of software.

    `machine` and `software`: of all ranks. `changes`: of the software since the sweep that it is
    compared with, the last one on the same machines that others can be compared with. `ratio`: of
    the step times, with its 95 % interval. `job_id`: the first job of it. Of each sweep the latest
    100 repetitions count; `scaling_efficiency_ratio` is null, since it takes the rest of the sweep.
    """

    sweep_id: int
    sweep_name: str
    job_id: int
    measured_at: str | None
    state: str
    machine: str | None
    software: dict[str, str]
    changes: list[str]
    compared_with_sweep_id: int | None
    verdict: str | None
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None


class HistoryOfCell(TypedDict):
    """The cell of a job in all sweeps, the newest first. `values`: of every axis, in base units."""

    job_id: int
    values: dict[str, Value]
    items: list[HistoryItem]
    next: str | None


def _type_of(axis: Axis) -> Any:
    """Return the type of a value in base units; None where it is not limited or not named."""
    of: Any = {WholeNumber: int, Amount: float, Boolean: bool}.get(type(axis.type), str)
    return of | None if axis.is_limit or isinstance(axis.type, Name) else of


_typed_dict: Any = TypedDict
SweepAnswer = _typed_dict(
    "SweepAnswer",
    {
        **{axis.field: _type_of(axis) for axis in TASK_AXES},
        "recommended": Option | None,
        "reason": str | None,
        "cautions": list[str],
        "warnings": list[str],
        "own_measurement_count": int,
        "other_measurement_count": int,
    },
)
SweepAnswer.__doc__ = """
The recommendation for a workload, a batch size and a network that the sweep has measured.

`own_measurement_count` and `other_measurement_count`: of the measurements that the recommended
option rests on, those of this sweep and of others. `reason`: why nothing is recommended.
`cautions`: why the recommended option may not be relied on.
"""


class SweepDetail(Sweep):
    """A sweep as it was submitted, its cells, and what is left to do.

    `spent_machine_s`: the time that all its attempts have held agents, times their number.
    """

    remaining_s: float | None
    spent_machine_s: float
    spec: dict[str, Any]
    skipped: list[str]
    recommended: list[SweepAnswer] | None  # type: ignore[valid-type] # made above
    cells: list[SweepCell]
    has_more_cells: bool
    target_ratio: float | None
    min_repetitions: int | None
    max_repetitions: int | None
    machine_s: float | None
    fixed_repetitions: int | None
    fixed_machine_s: float | None
    machine_hours_saved: float | None


class SweepList(TypedDict):
    """Sweeps, the newest first."""

    items: list[Sweep]
    next: str | None


class SignedAddress(TypedDict):
    """`address`: without secret parts. `secret`: the signing secret, as in Standard Webhooks."""

    address: str
    secret: str


class Submitted(TypedDict):
    """`skipped`: the impossible cells that were left out, each with its reason.

    `notify`: addresses of messages, and their signing secrets, which are shown only once.
    """

    id: int
    job_count: int
    max_job_count: int
    skipped: list[str]
    notify: list[SignedAddress]


class Notification(TypedDict):
    """A message to one address. `state`: `waiting`, `delivered` or `given_up`.

    `address`: without secret parts. `at`: when it happened.
    """

    id: int
    at: str | None
    type: str
    about: str
    sweep_id: int | None
    address: str
    state: str
    attempt_count: int
    last_at: str | None
    last_answer: str | None


class NotificationList(TypedDict):
    """Messages, the newest first."""

    items: list[Notification]
    next: str | None


class SentBundle(TypedDict):
    """A training script's files, as they were sent."""

    bundle_sha256: str
    byte_count: int
    files: list[str]


class SweepCancelled(TypedDict):
    """How many unfinished jobs are cancelled."""

    id: int
    cancelled_count: int


class SweepRetried(TypedDict):
    """How many jobs were queued again."""

    id: int
    retried_count: int


class SweepPaused(TypedDict):
    """`changed` is false if the state was the same before."""

    id: int
    is_paused: bool
    changed: bool
