"""How a configuration is set up beside its strategy, in words: what differs from the usual."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from farm.figures.display import count


class SetUp(Protocol):
    """What a job's specification and a cell of a sweep both have; values or enumerations."""

    @property
    def server_count(self) -> int: ...
    @property
    def server_placement(self) -> Any: ...
    @property
    def replicas_per_rank(self) -> int: ...
    @property
    def steps_between_averages(self) -> int: ...
    @property
    def placement(self) -> Any: ...
    @property
    def batch_split(self) -> Any: ...
    @property
    def interface(self) -> str | None: ...


def setup_words(what: SetUp) -> list[str]:
    """Return what is to be said, nothing of what is as usual."""
    found = [write(what) for write in _PHRASES]
    return [text for text in found if text]


def _servers(what: SetUp) -> str:
    if not what.server_count:
        return ""
    many = "server" if what.server_count == 1 else "servers"
    return f"{count(what.server_count)} {many} {_text(what.server_placement)}"


def _replicas(what: SetUp) -> str:
    return f"{count(what.replicas_per_rank)} replicas a rank" if what.replicas_per_rank > 1 else ""


def _averages(what: SetUp) -> str:
    steps = what.steps_between_averages
    return f"averaged every {count(steps)} steps" if steps > 1 else ""


def _placement(what: SetUp) -> str:
    return "hard placement" if _text(what.placement) == "hard" else ""


def _split(what: SetUp) -> str:
    return "batch split by speed" if _text(what.batch_split) == "by_speed" else ""


def _network(what: SetUp) -> str:
    return f"network {what.interface}" if what.interface is not None else ""


_PHRASES: tuple[Callable[[SetUp], str], ...] = (
    *(_servers, _replicas, _averages, _placement, _split, _network),
)


def _text(value: Any) -> str:
    return str(getattr(value, "value", value))
