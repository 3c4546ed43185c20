"""One rank of PyTorch that holds only a part of the model."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist

from farm.trainers.contracts import Evaluation, WeightSums
from farm.trainers.torch.engine import TorchEngine


class PartitionedEngine(TorchEngine):
    """Trains what `TorchEngine` trains. All ranks evaluate together, in `prepare_evaluation`."""

    _evaluation: Evaluation | None = None

    def evaluate(self, on_batch: Callable[[], None]) -> Evaluation:
        del on_batch
        assert self._evaluation is not None
        return self._evaluation

    def weight_sums(self) -> WeightSums:
        """Return the sums over the whole model; every rank must call it."""
        own = WeightSums.of(weights.double() for weights in self._own_weights())
        sums = torch.tensor([own.total, own.total_of_squares], dtype=torch.float64)
        total, total_of_squares = self._summed(sums)
        return WeightSums(total=total, total_of_squares=total_of_squares)

    @abstractmethod
    def _own_weights(self) -> Iterable[torch.Tensor]:
        """Return this rank's weights, so that each of the model is among those of one rank."""

    def _distribute(self) -> Any:
        return self._model

    def _summed(self, own: torch.Tensor) -> tuple[float, float]:
        """Return two numbers, (2,), each summed over the ranks."""
        own = own.to(self._device)
        dist.all_reduce(own)
        first, second = own.tolist()
        return first, second
