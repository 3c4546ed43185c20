"""The broker: queues of which any message may be taken, again or never."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from typing import Any

GIVEN_OUT_KEPT = 12


class Broker:
    """A message is taken by its place, and only whoever takes it decides whether it goes."""

    def __init__(self) -> None:
        self.is_away = False
        self.commands: dict[str, list[tuple[str, object]]] = defaultdict(list)
        # Of each agent the last commands, taken or not: a broker may give out one again, and late.
        self.given_out: dict[str, deque[tuple[str, object]]] = defaultdict(
            lambda: deque(maxlen=GIVEN_OUT_KEPT)
        )
        self.reports: list[object] = []
        self.heartbeats: list[object] = []

    def send_command(self, agent_id: str, name: str, envelope: object) -> None:
        """Put a command into its agent's queue; lost where the broker is away."""
        if not self.is_away:
            self.commands[agent_id].append((name, envelope))
            self.given_out[agent_id].append((name, envelope))

    def repeat_command(self, agent_id: str, place: int) -> None:
        """Put one of an agent's last commands into its queue again, before all others."""
        if given_out := self.given_out[agent_id]:
            self.commands[agent_id].insert(0, given_out[place % len(given_out)])

    def queues(self, agent_ids: Iterable[str]) -> list[list[Any]]:
        """Return the queues of reports and heartbeats, and of commands to each of these agents."""
        return [self.reports, self.heartbeats, *(self.commands[name] for name in agent_ids)]

    def empty(self) -> None:
        """Forget everything, as a Redis does that is restarted without its file."""
        self.commands.clear()
        self.reports.clear()
        self.heartbeats.clear()
