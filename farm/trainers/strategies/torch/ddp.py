"""Synchronous training by PyTorch: DistributedDataParallel over gloo, or NCCL between GPUs.

Gloo sums around a ring. Gradients of more than 1 MiB are summed in several buckets during the
backward pass, which hides the messages of all buckets but the last.
"""

from __future__ import annotations

from farm.configuration.catalogue import (
    GANG_AXES,
    PYTORCH_AXES,
    WHOLE_MODEL_AXES,
    GangShape,
    StrategyFacts,
    Traffic,
)
from farm.trainers.all_reduce import ring_all_reduce
from farm.trainers.strategies.torch import TorchStrategy


class TorchDdp(TorchStrategy):
    facts = StrategyFacts(
        name="torch_ddp",
        summary="synchronous, ring all-reduce: PyTorch's DistributedDataParallel; NCCL on GPUs",
        framework="torch",
        axes=(*GANG_AXES, *PYTORCH_AXES, *WHOLE_MODEL_AXES, "gradient_bucket_mib"),
        chooses_ports=True,
        has_loader=True,
    )

    def traffic(self, gang: GangShape, gradient_bytes: float) -> Traffic:
        return ring_all_reduce(gang.world_size, gradient_bytes)
