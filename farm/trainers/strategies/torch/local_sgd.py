"""Local SGD by PyTorch: `local_sgd` with its optimizers, over gloo, or NCCL between GPUs.

Each rank steps on the mean over its own share; its optimizer's state is not averaged. With SGD, k =
1 and equal shares this equals `torch_ddp`, see `local_sgd`. With AdamW it does not, since the
update is not linear in the gradient.

DiLoCo makes each average a gradient of an outer optimizer: Douillard et al. 2023, "DiLoCo:
Distributed low-communication training of language models". Every k steps the mean of the ranks'
changes since the last outer step is the gradient of Nesterov's momentum. The paper's inner
optimizer is AdamW, with k = 500; here the job chooses both. The messages are those of local SGD,
since the outer step needs only the mean of the weights.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from farm.configuration.catalogue import (
    PYTORCH_AXES,
    WHOLE_MODEL_AXES,
    GangShape,
    StrategyFacts,
    Traffic,
)
from farm.configuration.spec import JobSpec
from farm.trainers.all_reduce import periodic_all_reduce
from farm.trainers.strategies.torch import TorchStrategy

if TYPE_CHECKING:
    from farm.trainers.torch.engine import TorchEngine


class TorchLocalSgd(TorchStrategy):
    facts = StrategyFacts(
        name="torch_local_sgd",
        summary="PyTorch ranks train alone; all average their weights every "
        "steps_between_averages steps",
        framework="torch",
        axes=("ranks_per_agent", "steps_between_averages", *PYTORCH_AXES, *WHOLE_MODEL_AXES),
        min_world_size=2,
        is_synchronous=False,
        chooses_ports=True,
        has_loader=True,
    )

    def traffic(self, gang: GangShape, gradient_bytes: float) -> Traffic:
        return periodic_all_reduce(gang, gradient_bytes)

    def engine(self, job: JobSpec) -> type[TorchEngine]:
        del job
        from farm.trainers.torch.averaging import TorchAveragingEngine

        return TorchAveragingEngine


class TorchDiloco(TorchLocalSgd):
    facts = dataclasses.replace(
        TorchLocalSgd.facts,
        name="torch_diloco",
        summary="as torch_local_sgd, and each average is a step of an outer optimizer (DiLoCo)",
        axes=(*TorchLocalSgd.facts.axes, "outer_learning_rate", "outer_momentum"),
    )

    def engine(self, job: JobSpec) -> type[TorchEngine]:
        del job
        from farm.trainers.torch.averaging import DilocoEngine

        return DilocoEngine
