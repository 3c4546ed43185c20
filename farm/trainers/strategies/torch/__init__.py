"""Strategies of PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from farm.configuration.catalogue import StrategyFacts
from farm.configuration.spec import JobSpec
from farm.trainers.contracts import Engine, Seat

if TYPE_CHECKING:
    from farm.trainers.torch.engine import TorchEngine


class TorchStrategy:
    """Ranks of PyTorch. A subclass adds its `facts`, `traffic` and engine."""

    facts: StrategyFacts

    def prepare(self, job: JobSpec, cpu_count: int) -> str:
        from farm.trainers.torch.setup import import_torch

        framework = import_torch(job, cpu_count)
        self.engine(job)  # nothing may be imported during measured steps
        return framework

    def build(self, seat: Seat) -> Engine:
        from farm.trainers.torch.engine import choose_device
        from farm.trainers.torch.gang import join
        from farm.trainers.torch.loader import batch_loader

        device, engine = choose_device(), self.engine(seat.job)
        return engine(seat, device=device, loader=batch_loader(seat), gang=join(seat, device))

    def engine(self, job: JobSpec) -> type[TorchEngine]:
        """Import and return what a rank of the job is."""
        del job
        from farm.trainers.torch.engine import TorchEngine

        return TorchEngine
