"""A farm at one instant as plain values, which `tests.promises.invariants` judges."""

from __future__ import annotations

from dataclasses import dataclass

from farm.gang.lifecycle import AttemptState, JobState, RankPhase


@dataclass(frozen=True, slots=True, kw_only=True)
class JobValue:
    """`attempt_id`: its current attempt, None unless leased or running."""

    id: int
    state: JobState
    attempt_id: int | None
    agent_count: int
    is_finished: bool  # the instant at which it was over is stored


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptValue:
    """`id` is its fencing token."""

    id: int
    job_id: int
    number: int
    state: AttemptState


@dataclass(frozen=True, slots=True, kw_only=True)
class RankValue:
    """`reported`: which of its reports of a barrier, or of its end, are stored."""

    attempt_id: int
    rank: int
    agent_id: str
    phase: RankPhase
    reported: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentValue:
    """`lease_s`: what is left of its lease, negative where it ran out; None without one."""

    id: str
    attempt_id: int | None
    lease_s: float | None
    unclean_token: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementValue:
    id: int
    job_id: int
    attempt_id: int | None
    status: str  # "ok", or why its configuration fails


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreValue:
    """The whole store at one instant."""

    jobs: tuple[JobValue, ...]
    attempts: tuple[AttemptValue, ...]
    ranks: tuple[RankValue, ...]
    agents: tuple[AgentValue, ...]
    measurements: tuple[MeasurementValue, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """An agent served a rank of `token` from `begun` until `ended`, None while it does.

    Both are readings of any clock or counter that only grows, the same for all of an agent's lives.
    """

    agent_id: str
    token: int
    begun: float
    ended: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spooled:
    """What one report says, or one sample of it; the same value for a spool's and the store's.

    `tests.promises.store_snapshot.spooled` makes it of a report.
    """

    agent_id: str
    token: int
    rank: int
    kind: str
    content: str
