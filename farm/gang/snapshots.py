"""Snapshots of stored state, the input of the pure decisions. The store fills them in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from farm.configuration.spec import JobSpec
from farm.gang.lifecycle import AttemptState, RankPhase
from farm.measuring.control_run import ControlRun
from farm.messages.commands import RankAddress
from farm.messages.reports import PeerBandwidth, PeerRtt
from farm.messages.trainer_lines import Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingJob:
    """`waited_s`: since it became due, so a job waiting out a retry's pause has not waited.

    `repetition`: of its cell, from 0; first ones come before second ones.
    `measured_by`: agent to number of ranks that it served in repetitions of the same cell;
    `measured_on`: the fingerprints of their hardware. Both only choose among equals.
    `expected_s`: how long its gang will be at work, if anything is known; may be wrong.
    """

    job_id: int
    sweep_id: int = 0
    repetition: int = 0
    agent_count: int  # agents that its gang needs
    requires: frozenset[str] = frozenset()  # capabilities, such as "network"
    labels: frozenset[tuple[str, str]] = frozenset()
    avoid: frozenset[str] = frozenset()  # agents that failed it: only if there are no others
    measured_by: Mapping[str, int] = field(default_factory=dict)
    measured_on: frozenset[str] = frozenset()
    priority: int = 0  # larger goes first
    waited_s: float = 0.0
    expected_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GangAtWork:
    """A leased gang: leased `age_s` ago, and expected to take `expected_s` in all, if known."""

    sweep_id: int
    agent_ids: tuple[str, ...]
    age_s: float
    expected_s: float | None = None

    @property
    def remaining_s(self) -> float | None:
        """Return how much longer it is expected to take; None: not known.

        A gang beyond its expected length is expected to take as long again, as with heavy-tailed
        lengths: the longer it has taken, the longer it will take.
        """
        if self.expected_s is None:
            return None
        left_s = self.expected_s - self.age_s
        return left_s if left_s > 0 else self.age_s


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveAgent:
    """An agent with recent heartbeats. Idle: not leased, clean, not drained, accepts ranks."""

    agent_id: str
    machine_id: str
    cpus: frozenset[int]
    gpus: frozenset[str] = frozenset()
    capabilities: frozenset[str] = frozenset()
    labels: frozenset[tuple[str, str]] = frozenset()
    fingerprint: str = ""  # of its hardware
    memory_bytes: int | None = None  # where its models lie; None: not known, as of GPUs
    framework_version: str | None = None  # TensorFlow's; the ranks of a gang have the same one
    has_tensorflow: bool = True
    is_idle: bool
    is_occupying: bool  # leased or not yet clean: its cores are taken


@dataclass(frozen=True, slots=True, kw_only=True)
class RankView:
    """`lease_s`: the remaining time of its agent's lease; negative: expired."""

    rank: int
    agent_id: str
    phase: RankPhase
    address: RankAddress | None
    lease_s: float
    command_age_s: float  # since the command of the present phase was last sent
    succeeded: bool = False  # ended with a result
    failure: Failure | None = None  # ended with a failure
    ended_age_s: float | None = None  # since its end was stored
    framework: str | None = None  # name and version, and of a user's model which, once prepared
    weights_checksum: float | None = None  # only while its attempt starts
    # Only while its attempt waits at the barrier after it, and until shares by speed are sent.
    control: ControlRun | None = None
    device_control_s: float | None = None  # of its agent's GPUs, once prepared
    untouched: tuple[PeerRtt, ...] = ()  # these only once it is shaped and while that is judged
    shaped: tuple[PeerRtt, ...] = ()
    bandwidths: tuple[PeerBandwidth, ...] = ()
    emulator: str | None = None
    back: tuple[PeerRtt, ...] = ()  # after its end


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptView:
    token: int
    job_id: int
    spec: JobSpec
    state: AttemptState
    state_age_s: float
    ranks: tuple[RankView, ...]  # by rank
    cancel_requested: bool
