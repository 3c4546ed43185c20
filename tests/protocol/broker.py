"""The broker: queues of which any message may be taken, again or never."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any


class Broker:
    """A message is taken by its place, and only whoever takes it decides whether it goes."""

    def __init__(self) -> None:
        self.is_away = False
        self.commands: dict[str, list[tuple[str, object]]] = defaultdict(list)
        self.reports: list[object] = []
        self.heartbeats: list[object] = []

    def send_command(self, agent_id: str, name: str, envelope: object) -> None:
        """Put a command into its agent's queue; lost where the broker is away."""
        if not self.is_away:
            self.commands[agent_id].append((name, envelope))

    def queues(self, agent_ids: Iterable[str]) -> list[list[Any]]:
        """Return the queues of reports and heartbeats, and of commands to each of these agents."""
        return [self.reports, self.heartbeats, *(self.commands[name] for name in agent_ids)]

    def empty(self) -> None:
        """Forget everything, as a Redis does that is restarted without its file."""
        self.commands.clear()
        self.reports.clear()
        self.heartbeats.clear()
