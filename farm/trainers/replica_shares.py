"""Assigns devices and examples to the replicas of one rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from farm.trainers.loop.batches import share

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from farm.trainers.contracts import IndexArray


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaShares:
    """A rank's examples, replica by replica.

    Replica r takes `indices[bounds[r] : bounds[r + 1]]`, never nothing: one without examples has
    one of weight 0, since convolutions raise on an empty batch and the other replicas wait for its
    part of the sum. indices: (m,); bounds: (n + 1,); weights: (n,), 0 or 1.
    """

    indices: IndexArray
    bounds: NDArray[np.int32]
    weights: NDArray[np.float32]


def share_among_replicas(indices: IndexArray, replica_count: int) -> ReplicaShares:
    """Split a rank's share of a global batch; the first m mod n replicas get one more."""
    sizes = np.array(
        [
            len(share(len(indices), world_size=replica_count, rank=replica))
            for replica in range(replica_count)
        ]
    )
    # Empty shares are the last ones, and so are the examples that stand in for them.
    stand_ins = np.zeros(np.count_nonzero(sizes == 0), np.int32)
    ends = np.cumsum(np.maximum(sizes, 1))
    return ReplicaShares(
        indices=np.concatenate([indices, stand_ins]).astype(np.int32, copy=False),
        bounds=np.concatenate([[0], ends]).astype(np.int32),
        weights=(sizes > 0).astype(np.float32),
    )


def replica_devices(*, gpu_count: int, replica_count: int) -> tuple[str, ...]:
    """Return a device for each replica: GPUs where there are enough, else logical CPU devices.

    Never some of each: the replicas of a step wait for the slowest.
    """
    kind = "gpu" if gpu_count >= replica_count else "cpu"
    return tuple(f"/{kind}:{number}" for number in range(replica_count))
