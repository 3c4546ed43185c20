"""DiLoCo by PyTorch: local SGD whose averages are gradients of an outer optimizer.

Douillard et al. 2023, "DiLoCo: Distributed low-communication training of language models". Every k
steps the mean of the ranks' changes since the last outer step is the gradient of Nesterov's
momentum. The paper's inner optimizer is AdamW, with k = 500; here it is what the job says. What is
sent is as in `torch_local_sgd`: the outer step needs the mean of the weights alone.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from farm.trainers.strategies.torch.local_sgd import TorchLocalSgd

if TYPE_CHECKING:
    from farm.trainers.torch.averaging import DilocoEngine


class TorchDiloco(TorchLocalSgd):
    facts = dataclasses.replace(
        TorchLocalSgd.facts,
        name="torch_diloco",
        summary="as torch_local_sgd, and each average is a step of an outer optimizer (DiLoCo)",
        has_outer_optimizer=True,
    )

    def _engine(self) -> type[DilocoEngine]:
        from farm.trainers.torch.averaging import DilocoEngine

        return DilocoEngine
