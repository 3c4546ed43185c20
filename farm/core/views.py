"""Snapshots of stored state, as the pure decisions see them. The store fills them in."""

from __future__ import annotations

from dataclasses import dataclass

from farm.core.commands import RankAddress
from farm.core.lifecycle import AttemptState, RankPhase
from farm.core.spec import JobSpec
from farm.core.trainer_lines import Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingJob:
    """`waited_s`: since it became due, so a job waiting out a retry's pause has not waited."""

    job_id: int
    world_size: int
    requires: frozenset[str] = frozenset()  # capabilities, such as "netem"
    labels: frozenset[tuple[str, str]] = frozenset()
    avoid: frozenset[str] = frozenset()  # agents that failed it: only if there are no others
    priority: int = 0  # larger goes first
    waited_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveAgent:
    """An agent whose heartbeats arrive. Idle: not leased, clean, not drained, takes ranks."""

    agent_id: str
    machine_id: str
    cpus: frozenset[int]
    capabilities: frozenset[str] = frozenset()
    labels: frozenset[tuple[str, str]] = frozenset()
    is_idle: bool
    is_occupying: bool  # leased or not yet clean: its cores are taken


@dataclass(frozen=True, slots=True, kw_only=True)
class RankView:
    """`lease_s`: what is left of its agent's lease; negative: it ran out."""

    rank: int
    agent_id: str
    phase: RankPhase
    address: RankAddress | None
    lease_s: float
    command_age_s: float  # since the command of the present phase was last sent
    succeeded: bool = False  # ended with a result
    failure: Failure | None = None  # ended with a failure
    ended_age_s: float | None = None  # since its end was stored


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptView:
    token: int
    job_id: int
    spec: JobSpec
    state: AttemptState
    state_age_s: float
    ranks: tuple[RankView, ...]  # by rank
    cancel_requested: bool
