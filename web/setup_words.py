"""How a configuration is set up, in words: what differs from the usual, and all of it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol

from farm.figures.cell_configuration import CellConfiguration
from farm.figures.display import bit_rate, count, duration, percent

_MOST_KEPT = 4096  # of some 100 bytes


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


class Network(Protocol):
    """What was asked of a network: that of a job, and that of a cell."""

    @property
    def one_way_delay_s(self) -> float: ...
    @property
    def jitter_s(self) -> float: ...
    @property
    def packet_loss_ratio(self) -> float: ...
    @property
    def bandwidth_bytes_per_s(self) -> float | None: ...


# By a template it took a third of the page of two sweeps, which has 200 of them.
@functools.lru_cache(maxsize=_MOST_KEPT)
def configuration_words(what: CellConfiguration) -> str:
    """Say what was measured, all of it."""
    agents = "agent" if what.machine_count == 1 else "agents"
    parts = [
        what.strategy,
        f"{what.machine_count} {agents}",
        f"batch {count(what.global_batch_size)}",
        f"{what.model} on {what.dataset}",
    ]
    if what.training_pass != "forward_backward":
        parts.append(what.training_pass.replace("_", " "))
    parts += setup_words(what)
    if what.network is not None:
        parts.append(network_words(what.network))
    if what.emulator:
        parts.append(what.emulator)
    return ", ".join(parts)


def network_words(network: Network | None) -> str:
    """Say what was asked of the network; None is the untouched one."""
    if network is None:
        return "untouched"
    text = f"{duration(network.one_way_delay_s)} one way"
    if network.jitter_s:
        text += f" ± {duration(network.jitter_s)}"
    if network.packet_loss_ratio:
        text += f", {percent(network.packet_loss_ratio, 2)} lost"
    if network.bandwidth_bytes_per_s is not None:
        text += f", {bit_rate(network.bandwidth_bytes_per_s)}"
    return text


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
