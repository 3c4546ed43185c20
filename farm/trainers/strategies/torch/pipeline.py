"""Synchronous training of a model that is cut into stages, one on each rank: PyTorch's pipelining.

A batch goes through the stages in microbatches. With n stages that take equally long and m
microbatches, a rank is idle for (n - 1)/(m + n - 1) of a step (Huang et al. 2019, "GPipe: Efficient
training of giant neural networks using pipeline parallelism"). The updates are those of
`torch_ddp`. On one machine it is plain PyTorch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from farm.configuration.catalogue import PYTORCH_AXES, GangShape, StrategyFacts, Traffic
from farm.configuration.spec import JobSpec
from farm.trainers.strategies.torch import TorchStrategy

if TYPE_CHECKING:
    from farm.trainers.torch.engine import TorchEngine

_LOSS_BYTES = 8  # the last rank tells each other one


class TorchPipeline(TorchStrategy):
    facts = StrategyFacts(
        name="torch_pipeline",
        summary="synchronous, layers in stages, one on each rank: PyTorch's pipelining",
        framework="torch",
        axes=("ranks_per_agent", *PYTORCH_AXES, "pipeline_microbatches", "pipeline_cut"),
        chooses_ports=True,
        splits_layers=True,
    )

    def traffic(self, gang: GangShape, gradient_bytes: float) -> Traffic:
        """Return the mean over n ranks, of which those at the ends send less.

        The outputs of all stages but the last go on, and their gradients come back, in one message
        for each microbatch. Gradients of a table that several stages read take an all-reduce.
        """
        del gradient_bytes
        links = gang.world_size - 1
        return Traffic(
            messages=(2 * gang.pipeline_microbatches * links + gang.table_messages + links)
            / gang.world_size,
            bytes=(2 * gang.handed_on_bytes + gang.table_bytes + _LOSS_BYTES * links)
            / gang.world_size,
            is_by_examples=True,
        )

    def engine(self, job: JobSpec) -> type[TorchEngine]:
        if job.world_size == 1:
            return super().engine(job)
        from farm.trainers.torch.pipelined import PipelinedEngine

        return PipelinedEngine
