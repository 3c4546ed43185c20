"""The scheduler's timing rules, and the commands that it sends."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field

from farm.gang.barriers import Limits, commands_for
from farm.gang.lifecycle import AttemptState
from farm.gang.retries import RetryPolicy
from farm.gang.views import AttemptView
from farm.messages.commands import Command, StartRank
from farm.registry import described


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the scheduler goes by."""

    lease: dt.timedelta
    reserve_after_s: float
    limits: Limits = field(default_factory=Limits)
    policy: RetryPolicy = field(default_factory=RetryPolicy)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A command that is due, for one agent. `is_again`: it was sent before, and not answered."""

    agent_id: str
    command: Command
    is_again: bool = field(default=False, compare=False)

    @property
    def ids(self) -> dict[str, object]:
        """What a line of a log names it by."""
        if isinstance(self.command, StartRank):
            return {"agent_id": self.agent_id, **self.command.ids}
        token = getattr(self.command, "token", None)
        return {"agent_id": self.agent_id} | ({} if token is None else {"attempt_id": token})


def outgoing_of(
    attempt: AttemptView, state: AttemptState, ranks: tuple[int, ...], *, limits: Limits
) -> list[Outgoing]:
    """Return the commands for these ranks in that state of their attempt.

    Raises:
        InvalidSpec: its strategy is none of this version's.
    """
    described(attempt.spec.strategy)  # or its ranks would find out, one after the other
    return [
        Outgoing(attempt.ranks[rank].agent_id, command)
        for rank, command in commands_for(attempt, state, ranks, limits=limits).items()
    ]
