"""Local SGD by PyTorch: `local_sgd` with its optimizers, over gloo, or NCCL between GPUs.

Each rank steps on the mean over its own share, and its optimizer's state stays with it. With SGD,
k = 1 and equal shares this is `torch_ddp`: see `local_sgd`. With AdamW it is not, since the update
is not linear in the gradient.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from farm.configuration.catalogue import GangShape, StrategyFacts, Traffic
from farm.configuration.spec import JobSpec
from farm.trainers.all_reduce import periodic_all_reduce
from farm.trainers.averaging import EverySoManySteps
from farm.trainers.contracts import Engine, Seat

if TYPE_CHECKING:
    from farm.trainers.torch.averaging import TorchAveragingEngine


class TorchLocalSgd:
    facts = StrategyFacts(
        name="torch_local_sgd",
        summary="PyTorch ranks train alone; all average their weights every "
        "steps_between_averages steps",
        framework="torch",
        min_world_size=2,
        is_synchronous=False,
        averages_weights=True,
        chooses_ports=True,
        has_training_options=True,
        has_loader=True,
    )

    def traffic(self, gang: GangShape, gradient_bytes: float) -> Traffic:
        return periodic_all_reduce(gang, gradient_bytes)

    def prepare(self, job: JobSpec, cpu_count: int) -> str:
        from farm.trainers.torch.setup import import_torch

        return import_torch(job, cpu_count)

    def build(self, seat: Seat) -> Engine:
        from farm.trainers.torch.engine import choose_device
        from farm.trainers.torch.gang import join
        from farm.trainers.torch.loader import batch_loader

        device = choose_device()
        schedule = EverySoManySteps.of(seat.job)
        return self._engine()(
            seat, schedule, device=device, loader=batch_loader(seat), gang=join(seat, device)
        )

    def _engine(self) -> type[TorchAveragingEngine]:
        from farm.trainers.torch.averaging import TorchAveragingEngine

        return TorchAveragingEngine
