"""What the API answers, as types: shapes are held to them, and the document is made of them.

Names and units are the glossary's; instants are texts as RFC 3339 has them, in UTC. None is what
is not known. What agents report travels as it came, in the form of `farm.core.reports`.
"""

from __future__ import annotations

from typing import Any, NotRequired

from typing_extensions import TypedDict

from farm.core.reports import Sample
from farm.core.trainer_lines import Epoch
from farm.figures.step_points import StepPoint

# Free JSON, such as a report of an agent or a stored specification.
Free = dict[str, Any]


class Problem(TypedDict):
    """Why a request was refused, as RFC 9457 has it. `field`: what to mend, if it is one."""

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
    """A member of an attempt's gang. `prepared` to `ended` are its reports, as they came."""

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


class Measurement(TypedDict):
    """What one job, or one row of an imported study, measured. Times are medians."""

    id: int
    origin: str
    source_key: str
    job_id: int | None
    attempt_id: int | None
    created_at: str | None
    status: str
    model: str | None
    dataset: str | None
    training_pass: str
    framework: str | None
    strategy: str | None
    placement: str | None
    network: str | None
    instance_type: str | None
    world_size: int
    server_count: int
    server_placement: str | None
    replicas_per_rank: int | None
    steps_between_averages: int | None
    batch_split: str | None
    global_batch_size: int
    one_way_delay_s: float
    bandwidth_bytes_per_s: float | None
    packet_loss_ratio: float
    jitter_s: float
    repetition: int
    fingerprint: str | None
    step_time_s: float | None
    step_time_p25_s: float | None
    step_time_p75_s: float | None
    step_time_spread_s: float | None
    step_time_low_s: float | None
    step_time_high_s: float | None
    timed_step_count: int | None
    outlier_step_count: int | None
    steps_per_epoch: int | None
    time_per_epoch_s: float | None
    epochs: int | None
    accuracy: float | None
    throughput_examples_per_s: float | None
    parameter_count: int | None
    gradient_bytes: int | None
    compute_s: float | None
    communication_s: float | None
    profiled_step_time_s: float | None
    cpu_ratio: float | None
    resident_bytes: int | None
    net_rx_bytes_per_s: float | None
    net_tx_bytes_per_s: float | None
    sent_bytes_per_step: float | None
    received_bytes_per_step: float | None
    idle_ratio: float | None
    push_s: float | None
    pull_s: float | None
    update_count: int | None
    staleness_mean: float | None
    staleness_max: int | None
    rtt_s: float | None
    measured_bandwidth_bytes_per_s: float | None
    loaded_rtt_s: float | None
    control_ratio: float | None
    flags: list[Flag]
    details: Free


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
    """`changed` is false where there was nothing to do."""

    id: int
    changed: bool


class RankSamples(TypedDict):
    """The samples of one rank, thinned."""

    rank: int
    samples: list[Sample]


class Series(TypedDict):
    """What one attempt looked like, in seconds after go. `attempt` None: there was none."""

    job_id: int
    attempt: int | None
    samples: list[RankSamples]
    steps: list[StepPoint]
    epochs: list[Epoch]


class Log(TypedDict):
    """What the trainers of one rank wrote. `next`: the character to go on from.

    `is_complete`: nothing follows, now or later. `attempt` None: there was none yet.
    """

    job_id: int
    attempt: int | None
    rank: int | None
    text: str
    next: int
    is_complete: bool


class Agent(TypedDict):
    """An agent, what it says of itself (`facts`), and what it is leased for."""

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
    """Whether an agent takes nothing new."""

    id: str
    is_drained: bool


class OpenApi(TypedDict):
    """A description of an API, as OpenAPI 3.1 has it."""

    openapi: str
    info: Free
    tags: list[Free]
    paths: Free
    components: Free
