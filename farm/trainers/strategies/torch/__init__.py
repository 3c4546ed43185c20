"""Strategies of PyTorch."""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING

from farm.configuration.catalogue import StrategyFacts
from farm.configuration.spec import JobSpec, OperatorPlacement
from farm.trainers.contracts import Engine, RankContext
from farm.trainers.models import MODELS

if TYPE_CHECKING:
    from farm.trainers.torch.engine import TorchEngine


class TorchStrategy:
    """Ranks of PyTorch. A subclass adds its `facts`, `traffic` and engine."""

    facts: StrategyFacts

    def prepare(self, job: JobSpec, cpu_count: int) -> str:
        framework = _import_torch(job, cpu_count)
        self.engine(job)  # nothing may be imported during measured steps
        return framework

    def build(self, rank_context: RankContext) -> Engine:
        from farm.trainers.torch.engine import choose_device
        from farm.trainers.torch.gang import join
        from farm.trainers.torch.loader import batch_loader

        device, engine = choose_device(), self.engine(rank_context.job)
        return engine(
            rank_context,
            device=device,
            loader=batch_loader(rank_context),
            gang=join(rank_context, device),
        )

    def engine(self, job: JobSpec) -> type[TorchEngine]:
        """Import and return what a rank of the job is."""
        del job
        from farm.trainers.torch.engine import TorchEngine

        return TorchEngine


def _import_torch(job: JobSpec, cpu_count: int) -> str:
    """Import PyTorch and the engine, set threads and devices; return name and version.

    Only a user's own model brings Keras along, which then runs on PyTorch. It must not have been
    imported in this process with another backend.

    With hard placement no GPU is visible, and an operator that asks for one is an error.
    """
    os.environ["KERAS_BACKEND"] = "torch"  # whatever the user's keras.json says
    if job.placement is OperatorPlacement.HARD:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    # Else torch.compile starts processes, which would share the rank's cores from then on.
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    import torch

    torch.set_num_threads(cpu_count)
    # One step is one chain of operators; more than one at a time would need cores of their own.
    torch.set_num_interop_threads(1)
    # Imported now, since nothing may be imported during measured steps.
    importlib.import_module("farm.trainers.torch.engine")
    # The first optimizer of a process imports PyTorch's compiler, which takes seconds.
    torch.optim.SGD([torch.zeros(1, requires_grad=True)])
    if all(model.facts.name != job.model for model in MODELS):
        keras = importlib.import_module("keras")
        keras.config.set_image_data_format("channels_last")
    return f"torch {torch.__version__}"
