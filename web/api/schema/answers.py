"""Types of the API's answers: the OpenAPI document is generated from them.

Names and units are the glossary's. Instants are RFC 3339 texts in UTC. None means not known.
Reports of agents are passed on unchanged, in the form of `farm.messages.reports`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NotRequired, TypeAlias, get_type_hints

from typing_extensions import TypedDict

from farm.charts.job.steps import StepPoint
from farm.configuration.spec import JobSpec
from farm.messages.reports import Sample
from farm.messages.trainer_lines import Epoch
from farm.recommend.implausible import Doubt
from farm.recommend.sweeps.expectation import Expectation
from farm.store.result_tables import MEASUREMENTS

# Free JSON, such as a report of an agent or a stored specification.
Free = dict[str, Any]


class Problem(TypedDict):
    """Why a request was refused, as in RFC 9457. `field`: the field at fault, if there is one."""

    type: str
    title: str
    status: int
    detail: str
    field: NotRequired[str]


class Job(TypedDict):
    """A job. `spec` is what is measured; `attempt_id` is set while a gang works on it."""

    id: int
    sweep_id: int
    state: str
    spec: Free
    priority: int
    attempt_count: int
    attempt_id: int | None
    cancel_requested: bool
    failure_kind: str | None
    reason: str | None
    created_at: str | None
    due_at: str | None
    finished_at: str | None


class JobList(TypedDict):
    """Jobs by ascending id."""

    items: list[Job]
    next: str | None


class Event(TypedDict):
    """A change of state of a job or of an attempt."""

    at: str | None
    event: str
    reason: str | None
    attempt_id: int | None


class Rank(TypedDict):
    """A member of an attempt's gang. `prepared` to `ended` are its reports, unchanged."""

    rank: int
    agent_id: str
    phase: str
    hardware: Free
    prepared: Free | None
    peers: Free | None
    shaped: Free | None
    started: Free | None
    ended: Free | None
    control_s: float | None
    disturbed_by: str | None


class Attempt(TypedDict):
    """One try of a job by one gang."""

    id: int
    number: int
    state: str
    leased_at: str | None
    started_at: str | None
    ended_at: str | None
    failure_kind: str | None
    reason: str | None
    ranks: list[Rank]


class Flag(TypedDict):
    """What disturbed a measurement, or was left out of an imported one.

    `value`: by how much, in the unit of the limit; null or missing: not recorded.
    """

    kind: str
    message: str
    value: NotRequired[float | None]


def _measurement_fields() -> dict[str, Any]:
    """Return the type of each column of a measurement, without the range in which it is admitted.

    Stored values may be older than a range.
    """
    fields = {
        name: column.type.python_type | None if column.nullable else column.type.python_type
        for name, column in MEASUREMENTS.items()
    }
    own = {"created_at": str | None, "flags": list[Flag], "is_disturbed": bool, "details": Free}
    return {**fields, **own}


if TYPE_CHECKING:
    Measurement: TypeAlias = Mapping[str, Any]
else:
    Measurement = TypedDict("Measurement", _measurement_fields())
    Measurement.__doc__ = (
        "What one job, or one row of an imported study, measured. Times are medians. Disturbed is "
        "what a flag of the farm's own says so of: an importer's flag is no disturbance."
    )


class MeasurementList(TypedDict):
    """Measurements by ascending id."""

    items: list[Measurement]
    next: str | None


class JobStory(Job):
    """A job with every change of its state, its attempts, and what it measured."""

    sweep_name: str
    story: list[Event]
    attempts: list[Attempt]
    measurement: Measurement | None
    waits_because: str | None


class JobChanged(TypedDict):
    """`changed` is false if there was nothing to do."""

    id: int
    changed: bool


class RankSamples(TypedDict):
    """The samples of one rank, thinned."""

    rank: int
    samples: list[Sample]


class Series(TypedDict):
    """The series of one attempt, in seconds after go. `attempt` None: there was none."""

    job_id: int
    attempt: int | None
    samples: list[RankSamples]
    steps: list[StepPoint]
    epochs: list[Epoch]


class Log(TypedDict):
    """The output of the trainers of one rank. `next`: the character to continue from.

    `is_complete`: nothing follows, now or later. `attempt` None: there was none yet.
    """

    job_id: int
    attempt: int | None
    rank: int | None
    text: str
    next: int
    is_complete: bool


class Agent(TypedDict):
    """An agent, its own report (`facts`), and its lease."""

    id: str
    status: str
    is_live: bool
    is_drained: bool
    heartbeat_at: str | None
    heartbeat_age_s: float | None
    clock_offset_s: float | None
    first_seen_at: str | None
    attempt_id: int | None
    job_id: int | None
    rank: int | None
    fingerprint: str
    template_bytes: int | None
    facts: Free


class AgentList(TypedDict):
    """Agents by id."""

    items: list[Agent]
    next: str | None


class AgentDrained(TypedDict):
    """Whether an agent takes no new ranks."""

    id: str
    is_drained: bool


class OpenApi(TypedDict):
    """A description of an API, as OpenAPI 3.1 has it."""

    openapi: str
    info: Free
    tags: list[Free]
    paths: Free
    components: Free


if TYPE_CHECKING:
    Specification: TypeAlias = Mapping[str, Any]
else:
    Specification = TypedDict("Specification", {**get_type_hints(JobSpec), "warmup_steps": int})
    Specification.__doc__ = "What one job measures. `warmup_step_count` will go with 0.2.0."


class Origin(TypedDict):
    """Where measurements come from. `source`: a citation, or the file of an imported table."""

    origin: str
    source: str | None
    measurement_count: int
    failed_count: int
    workload_count: int
    fingerprint_count: int
    first_at: str | None
    last_at: str | None


class OriginList(TypedDict):
    """The farm's own measurements first, then the imported ones by name."""

    items: list[Origin]
    next: str | None


class SuspiciousList(TypedDict):
    """By measurement. `lacking`: workloads that cannot be judged (yet), and why."""

    items: list[Doubt]
    next: str | None
    lacking: list[str]


class Preview(TypedDict):
    """The jobs that a sweep would have. `jobs`: the first of them; `has_more_jobs`: there are more.

    `expected` None goes with `expected_unknown_because`.
    """

    name: str
    job_count: int
    max_job_count: int
    skipped: list[str]
    jobs: list[Specification]
    has_more_jobs: bool
    expected: Expectation | None
    expected_unknown_because: str | None


class Proposal(TypedDict):
    """One proposed measurement. The regrets are means over all questions, before and after it."""

    configuration: dict[str, Any]
    cost: float
    reason: str
    regret_before_ratio: float
    regret_after_ratio: float


class Plan(TypedDict):
    """What to measure next. `sweep`: the text of a sweep file, None where nothing is proposed.

    `cost_unit` is USD or machine hours. `fingerprints`: the kinds of hardware that were measured;
    the plan is for the first of them unless one was asked for.
    """

    origin: str
    fingerprints: list[str | None]
    proposals: list[Proposal]
    question_count: int
    regret_before_ratio: float
    regret_after_ratio: float
    cost: float
    cost_unit: str
    stopped_because: str | None
    considered_count: int
    grid_count: int
    sweep: str | None
