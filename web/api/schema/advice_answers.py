"""Types of the API's answers about origins, implausible measurements, plans and previews."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, get_type_hints

from typing_extensions import TypedDict

from farm.configuration.spec import JobSpec
from farm.recommend.doubts import Doubt
from farm.recommend.sweeps.expectation import Expectation

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
    """By measurement. `lacking`: of which workloads nothing can be said (yet), and why."""

    items: list[Doubt]
    next: str | None
    lacking: list[str]


class Preview(TypedDict):
    """What a sweep would become. `jobs`: the first of them; `has_more_jobs`: there are others.

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
    """One measurement. The regrets are the means over all questions, before it and after it."""

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
