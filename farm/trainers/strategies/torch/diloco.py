"""DiLoCo by PyTorch: local SGD whose averages are gradients of an outer optimizer.

Douillard et al. 2023, "DiLoCo: Distributed low-communication training of language models". Every k
steps the mean of the ranks' changes since the last outer step is the gradient of Nesterov's
momentum. The paper's inner optimizer is AdamW, with k = 500; here it is what the job says. What is
sent is as in `torch_local_sgd`: the outer step needs the mean of the weights alone.
"""

from __future__ import annotations

from farm.configuration.catalogue import GangShape, StrategyFacts, Traffic
from farm.configuration.spec import JobSpec
from farm.trainers.all_reduce import periodic_all_reduce
from farm.trainers.averaging import EverySoManySteps
from farm.trainers.contracts import Engine, Seat


class TorchDiloco:
    facts = StrategyFacts(
        name="torch_diloco",
        summary="as torch_local_sgd, and each average is a step of an outer optimizer (DiLoCo)",
        framework="torch",
        min_world_size=2,
        is_synchronous=False,
        averages_weights=True,
        has_outer_optimizer=True,
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
        from farm.trainers.torch.averaging import DilocoEngine
        from farm.trainers.torch.engine import choose_device
        from farm.trainers.torch.gang import join
        from farm.trainers.torch.loader import batch_loader

        device = choose_device()
        schedule = EverySoManySteps.of(seat.job)
        return DilocoEngine(
            seat, schedule, device=device, loader=batch_loader(seat), gang=join(seat, device)
        )
