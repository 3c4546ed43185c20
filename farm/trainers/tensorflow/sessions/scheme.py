"""The four exchange schemes: which process stores which weights. Pure."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass


class Scheme(enum.Enum):
    """Where a rank sends its gradients, and where it gets its weights."""

    PS_ASYNC = "ps_async"
    PS_SYNC = "ps_sync"
    REPLICATED = "replicated"
    CENTRAL_REDUCE = "central_reduce"

    @property
    def is_synchronous(self) -> bool:
        return self is not Scheme.PS_ASYNC

    @property
    def has_servers(self) -> bool:
        """Whether weight hosts are servers, which run the optimizer; else each rank runs it."""
        return self is not Scheme.CENTRAL_REDUCE

    @property
    def has_copies(self) -> bool:
        """Whether each rank computes with weights of its own; else it pulls them in every step."""
        return self in {Scheme.REPLICATED, Scheme.CENTRAL_REDUCE}

    @property
    def weight_host_role(self) -> str:
        return "ps" if self.has_servers else "worker"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankScheme:
    """One rank's part. `homes`: for each weight, the index of its weight host."""

    scheme: Scheme
    rank: int
    world_size: int
    weight_host_devices: tuple[str, ...]
    own_device: str
    homes: tuple[int, ...]
    is_forward: bool

    @property
    def is_chief(self) -> bool:
        """Whether this rank sets up what is shared, and triggers the weight hosts once a step."""
        return self.rank == 0

    @property
    def used_weight_hosts(self) -> tuple[int, ...]:
        """The hosts that have a weight; with fewer weights than servers some have none."""
        return tuple(sorted(set(self.homes)))


def spread(sizes: Sequence[int], weight_host_count: int) -> tuple[int, ...]:
    """Return the host of each weight: the largest first, each to the host with least so far.

    A weight is never cut, so that one server may have more than its share: of VGG16's bytes three
    quarters are one matrix.
    """
    loads = [0] * weight_host_count
    homes = [0] * len(sizes)
    for weight in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        weight_host = loads.index(min(loads))
        homes[weight] = weight_host
        loads[weight_host] += sizes[weight]
    return tuple(homes)
