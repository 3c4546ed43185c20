"""Sends the scheduler's commands to agents; holds its time limits and retry policy."""

from __future__ import annotations

import datetime as dt
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from farm.broker.sending import Sender, Signer
from farm.errors import FarmError
from farm.gang.barriers import Limits, commands_for
from farm.gang.lifecycle import AttemptState
from farm.gang.retries import RetryPolicy
from farm.gang.snapshots import AttemptView
from farm.messages.commands import Command, StartRank
from farm.registry import strategy_or_launcher

logger = logging.getLogger(__name__)

# For so long after a failure the broker counts as away: longer than until a command is due again.
_AWAY_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The scheduler's lease time, time limits and retry policy."""

    lease: dt.timedelta
    reserve_after_s: float
    limits: Limits = field(default_factory=Limits)
    policy: RetryPolicy = field(default_factory=RetryPolicy)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A due command for one agent. `is_again`: it was sent before and not answered."""

    agent_id: str
    command: Command
    is_again: bool = field(default=False, compare=False)

    @property
    def ids(self) -> dict[str, object]:
        """Its ids for log lines."""
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
    strategy_or_launcher(attempt.spec.strategy)  # or its ranks would find out, one after the other
    return [
        Outgoing(attempt.ranks[rank].agent_id, command)
        for rank, command in commands_for(attempt, state, ranks, limits=limits).items()
    ]


class CommandSender:
    """Sends commands to agents, and remembers when the broker refused them."""

    def __init__(self, sender: Sender, signer: Signer | None = None) -> None:
        self._sender = sender
        self._signer = signer
        self._away_until_s = 0.0  # by the monotonic clock

    @property
    def is_away(self) -> bool:
        """Whether the broker refused the latest commands a short time ago.

        Then no further gang should start, since a gang without commands loses its attempt. Refused
        commands are due again before this is forgotten.
        """
        return time.monotonic() < self._away_until_s

    def send(self, outgoing: Sequence[Outgoing]) -> None:
        """Send due commands in order; those that fail become due again."""
        if not outgoing:
            return
        try:
            commands = [(due.agent_id, due.command) for due in outgoing]
            self._sender.send(commands, signer=self._signer)
        except FarmError as error:
            ids, behind = outgoing[0].ids, len(outgoing) - 1
            logger.warning("command not sent, and %d behind: %s", behind, error, extra=ids)
            self._away_until_s = time.monotonic() + _AWAY_S
        else:
            self._away_until_s = 0.0
