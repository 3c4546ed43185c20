"""What the jobs of a cell have in common, as pages tell it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from farm.core.machine_time import machine_count
from farm.core.nouns import counted
from farm.core.spec import BatchSplit, OperatorPlacement, ServerPlacement
from farm.figures.display import count


@dataclass(frozen=True, slots=True, kw_only=True)
class CellConfiguration:
    """What the jobs of a cell have in common. Without a network profile it asks for nothing.

    `length`: how long a job of it measures; `labels`: which agents may serve it.
    """

    model: str
    dataset: str
    training_pass: str
    strategy: str
    world_size: int
    server_count: int
    global_batch_size: int
    one_way_delay_s: float
    jitter_s: float
    packet_loss_ratio: float
    bandwidth_bytes_per_s: float | None
    server_placement: str | None = None  # None where there are no servers
    replicas_per_rank: int = 1
    steps_between_averages: int = 1
    placement: str = OperatorPlacement.SOFT.value
    batch_split: str = BatchSplit.EVEN.value
    interface: str | None = None
    emulator: str | None
    length: str
    labels: str

    @property
    def is_one_machine(self) -> bool:
        """Whether it needs no network, and so is the same on every one."""
        return self.world_size == 1 and self.server_count == 0

    @property
    def machine_count(self) -> int:
        """Ranks that train, and servers on machines of their own."""
        return machine_count(self.world_size, self.server_count, self.server_placement)

    @property
    def network(self) -> CellConfiguration | None:
        """What was asked of the network, by the names of a profile; None: it is untouched."""
        asked = self.one_way_delay_s or self.jitter_s or self.packet_loss_ratio
        return self if asked or self.bandwidth_bytes_per_s is not None else None


def configuration_of(spec: Mapping[str, Any]) -> CellConfiguration:
    """Read the specification of a stored job, which was checked when it was written."""
    network = spec.get("network") or {}
    server_count = spec.get("server_count") or 0
    servers_are = spec.get("server_placement") or ServerPlacement.COLLOCATED.value
    return CellConfiguration(
        model=spec["model"],
        dataset=spec["dataset"],
        training_pass=spec.get("training_pass") or "forward_backward",
        strategy=spec["strategy"],
        world_size=spec["world_size"],
        server_count=server_count,
        server_placement=servers_are if server_count else None,
        replicas_per_rank=spec.get("replicas_per_rank") or 1,
        steps_between_averages=spec.get("steps_between_averages") or 1,
        placement=spec.get("placement") or OperatorPlacement.SOFT.value,
        batch_split=spec.get("batch_split") or BatchSplit.EVEN.value,
        interface=spec.get("interface"),
        global_batch_size=spec["global_batch_size"],
        one_way_delay_s=network.get("one_way_delay_s") or 0.0,
        jitter_s=network.get("jitter_s") or 0.0,
        packet_loss_ratio=network.get("packet_loss_ratio") or 0.0,
        bandwidth_bytes_per_s=network.get("bandwidth_bytes_per_s"),
        emulator=spec.get("emulator"),
        length=_length(spec),
        labels=", ".join(f"{k}={v}" for k, v in sorted((spec.get("labels") or {}).items())),
    )


def _length(spec: Mapping[str, Any]) -> str:
    of_epochs, steps = spec.get("epochs"), spec.get("steps")
    if of_epochs:
        return counted(of_epochs, "epoch", write=count)
    return counted(steps or 0, "step", write=count)
