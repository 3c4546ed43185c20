"""A PyTorch rank that trains its own weights and averages them with its peers now and then.

Without DistributedDataParallel gradients stay on the rank. The mean of the weights is one
all-reduce of all of them end to end, by gloo between CPUs and NCCL between GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from farm.trainers.averaging import AveragingSchedule
from farm.trainers.contracts import Evaluation, Seat, WeightSums
from farm.trainers.gang import Gang
from farm.trainers.torch.engine import TorchEngine

if TYPE_CHECKING:
    from farm.trainers.contracts import IndexArray


class TorchAveragingEngine(TorchEngine):
    """Steps on the rank's own share; all ranks average after those steps that the schedule names.

    Averaged is what the model is: trained weights and moving statistics. The optimizer's state
    stays with the rank. A rank without examples in a step makes no update and averages
    nonetheless. What is evaluated, and summed by `weight_sums` until the next step, is the mean of
    all ranks.
    """

    def __init__(
        self, seat: Seat, schedule: AveragingSchedule, *, device: torch.device, gang: Gang
    ) -> None:
        super().__init__(seat, device=device, gang=gang)
        self._averaging = schedule
        self._step_count = 0
        self._evaluated: list[torch.Tensor] | None = None

    def step(self, indices: IndexArray, *, examples_count: int) -> float:
        self._evaluated = None
        loss_sum = 0.0
        with self._marked_step():
            if len(indices) > 0:
                loss_sum = self._run(indices, 1.0 / len(indices))
                self._count_update(examples_count)
            if self._averaging.group_after(self._step_count) is not None and not self._is_forward:
                self._set_weights(self._mean_weights())
        self._step_count += 1
        return loss_sum

    def prepare_evaluation(self) -> None:
        self._evaluated = self._mean_weights()

    def evaluate(self, on_batch: Callable[[], None]) -> Evaluation:
        assert self._evaluated is not None
        own = [tensor.clone() for tensor in self._averaged_tensors()]
        self._set_weights(self._evaluated)
        try:
            return super().evaluate(on_batch)
        finally:
            self._set_weights(own)

    def save(self) -> object:
        return self._step_count, super().save()

    def restore(self, state: object) -> None:
        assert isinstance(state, tuple)
        self._evaluated = None
        self._step_count, rest = state
        super().restore(rest)

    def weight_sums(self) -> WeightSums:
        if self._evaluated is None:
            return super().weight_sums()
        return WeightSums.of(w.double() for w in self._evaluated[: len(self._parameters)])

    def _distribute(self) -> Any:
        """Return what a training step calls, with rank 0's weights."""
        for tensor in self._averaged_tensors():
            dist.broadcast(tensor, 0)
        return self._model

    def _averaged_tensors(self) -> list[torch.Tensor]:
        """Return what is averaged, trained weights first; it shares the model's memory."""
        others = [p for p in self._model.parameters() if not p.requires_grad]
        rest = [t for t in (*others, *self._model.buffers()) if t.is_floating_point()]
        return [tensor.detach() for tensor in (*self._parameters, *rest)]

    def _mean_weights(self) -> list[torch.Tensor]:
        """Return the means over ranks; every rank must call it."""
        tensors = self._averaged_tensors()
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        dist.all_reduce(flat)
        parts = torch.split(flat.div_(self._world_size), [tensor.numel() for tensor in tensors])
        return [part.view_as(tensor) for part, tensor in zip(parts, tensors, strict=True)]

    def _set_weights(self, values: Sequence[torch.Tensor]) -> None:
        for tensor, value in zip(self._averaged_tensors(), values, strict=True):
            tensor.copy_(value)
