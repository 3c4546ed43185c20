"""What the simulated farm asks of its server, and the rules that it goes by."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from farm.configuration.spec import JobSpec
from farm.gang.barriers import Limits
from farm.gang.retries import RetryPolicy
from farm.measuring.noise import NoiseLimits, NoisePolicy
from farm.messages.commands import Command
from farm.scheduler.outgoing import Outgoing, Rules
from tests.factories import job_spec, seconds
from tests.promises.protocol_values import Spooled, StoreValue

LEASE_S = 4.0
RULES = Rules(
    lease=seconds(LEASE_S),
    reserve_after_s=60.0,
    limits=Limits(
        prepare_s=20.0,
        start_s=20.0,
        end_s=10.0,
        # How far a simulated machine is disturbed says nothing of the protocol.
        noise=NoiseLimits(policy=NoisePolicy.FLAG),
    ),
    policy=RetryPolicy(max_attempts=3, wait_s=0.2),
)
_TIME_LIMIT_S = 60.0


class Answer(NamedTuple):
    """To a message. `is_rung`: the scheduler has reason to look."""

    agent_id: str
    command: Command
    is_rung: bool


class Round(NamedTuple):
    """What a scheduler's round says to the agents, and the one of another that overtook it."""

    outgoing: Sequence[Outgoing]
    overtaking: Sequence[Outgoing]


class Server(Protocol):
    """Schedulers, collectors and a store."""

    def submit(self, *, agent_count: int, now: dt.datetime) -> int:
        """Add a waiting job and return its id."""

    def cancel(self, job_id: int, *, now: dt.datetime) -> None: ...

    def ask_again(self, job_id: int, *, now: dt.datetime) -> None:
        """Retry a job that has failed or was cancelled."""

    def drain(self, agent_id: str, *, is_drained: bool) -> None:
        """Drain an agent or take it back; nothing where it has never been heard of."""

    def heartbeat(self, envelope: object, *, now: dt.datetime) -> Answer: ...

    def reports(self, envelope: object, *, now: dt.datetime) -> Answer: ...

    def round(self, *, now: dt.datetime, is_overtaken: bool) -> Round:
        """Let a scheduler look.

        `is_overtaken`: between its look at what waits and its leases another one does all of its
        round.
        """

    def value(self, *, now: dt.datetime) -> StoreValue: ...

    def stored(self) -> list[Spooled]:
        """Return what it has of the agents' reports, counted or late."""


def spec_of(agent_count: int) -> JobSpec:
    """Return a job of some steps without a network profile."""
    return job_spec(
        world_size=agent_count, global_batch_size=32, steps=3, time_limit_s=_TIME_LIMIT_S
    )
