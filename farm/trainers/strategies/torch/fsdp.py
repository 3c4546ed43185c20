"""Synchronous training of a model whose weights are spread over the ranks: PyTorch's FSDP2.

Each of n ranks holds 1/n of the weights, their gradients and the optimizer's state: stage 3 of
Rajbhandari et al. 2020 ("ZeRO: Memory optimizations toward training trillion parameter models").
The updates are those of `torch_ddp`. On one machine it is plain PyTorch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from farm.configuration.catalogue import GANG_AXES, PYTORCH_AXES, GangShape, StrategyFacts, Traffic
from farm.configuration.spec import JobSpec
from farm.trainers.strategies.torch import TorchStrategy

if TYPE_CHECKING:
    from farm.trainers.torch.engine import TorchEngine


class TorchFsdp(TorchStrategy):
    facts = StrategyFacts(
        name="torch_fsdp",
        summary="synchronous, weights sharded over the ranks: PyTorch's fully_shard; NCCL on GPUs",
        framework="torch",
        axes=(*GANG_AXES, *PYTORCH_AXES, "gradient_accumulation_steps"),
        chooses_ports=True,
        has_loader=True,
        shards_weights=True,
    )

    def traffic(self, gang: GangShape, gradient_bytes: float) -> Traffic:
        """Return what one of n ranks sends for b bytes of weights.

        An all-gather and a reduce-scatter each take n - 1 messages a unit, together (n - 1)/n x b
        bytes. Weights are gathered in each forward and each backward pass, of which a step has one
        for each part of a batch; gradients are scattered once a step.
        """
        collective_count = 2 * gang.gradient_accumulation_steps + 1
        others = gang.world_size - 1
        return Traffic(
            messages=collective_count * others * gang.unit_count,
            bytes=collective_count * others / gang.world_size * gradient_bytes,
        )

    def engine(self, job: JobSpec) -> type[TorchEngine]:
        if job.world_size == 1:
            return super().engine(job)
        from farm.trainers.torch.sharded import ShardedEngine

        return ShardedEngine
