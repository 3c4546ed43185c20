"""PyTorch ranks that train weights of their own and average them periodically.

Without DistributedDataParallel, gradients stay on the rank. The mean of the weights is one
all-reduce of all weights in one buffer, by gloo between CPUs and NCCL between GPUs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from farm.trainers.averaging import PeriodicAveraging
from farm.trainers.contracts import Evaluation, Gang, RankContext, WeightSums
from farm.trainers.torch.engine import TorchEngine
from farm.trainers.torch.loader import BatchLoader

if TYPE_CHECKING:
    from farm.trainers.contracts import IndexArray


class TorchAveragingEngine(TorchEngine):
    """Steps on the rank's own share; all ranks average every few of them.

    Averaged is what the model is: trained weights and moving statistics. The optimizer's state
    stays with the rank. A rank without examples in a step makes no update and averages
    nonetheless. What is evaluated, and summed by `weight_sums` until the next step, is the mean of
    all ranks.
    """

    def __init__(
        self,
        rank_context: RankContext,
        *,
        device: torch.device,
        gang: Gang,
        loader: BatchLoader | None = None,
    ) -> None:
        # A slower rank may be many steps behind. One that is stopped is its own agent's affair.
        self._group = dist.new_group(timeout=timedelta(seconds=rank_context.job.time_limit_s))
        super().__init__(rank_context, device=device, gang=gang, loader=loader)
        self._averaging = PeriodicAveraging.of(rank_context.job)
        self._step_count = 0
        self._evaluated: list[torch.Tensor] | None = None

    def step(self, indices: IndexArray, *, examples_count: int) -> float:
        """Train on own examples, and average weights where the schedule says so."""
        self._evaluated = None
        indices = self._held(indices)
        loss_sum = 0.0
        with self._marked_step(indices, examples_count=examples_count):
            if len(indices) > 0:
                loss_sum = self._run(indices, 1.0 / len(indices))
                self._count_update(examples_count)
            elif not self._is_forward:
                self._advance_schedule()  # which goes by the steps of the gang
            if self._averaging.group_after(self._step_count) is not None and not self._is_forward:
                self._average()
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

    def _average(self) -> None:
        self._set_weights(self._mean_weights())

    def _distribute(self) -> Any:
        """Return what a training step calls, with rank 0's weights."""
        for tensor in self._averaged_tensors():
            dist.broadcast(tensor, 0, group=self._group)
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
        dist.all_reduce(flat, group=self._group)
        parts = torch.split(flat.div_(self._world_size), [tensor.numel() for tensor in tensors])
        return [part.view_as(tensor) for part, tensor in zip(parts, tensors, strict=True)]

    def _set_weights(self, values: Sequence[torch.Tensor]) -> None:
        for tensor, value in zip(self._averaged_tensors(), values, strict=True):
            tensor.copy_(value)


class DilocoEngine(TorchAveragingEngine):
    """Makes an outer step of each average, from the weights after the one before.

    Moving statistics are averaged without one, since no gradient changes them.
    """

    def __init__(
        self,
        rank_context: RankContext,
        *,
        device: torch.device,
        gang: Gang,
        loader: BatchLoader | None = None,
    ) -> None:
        super().__init__(rank_context, device=device, gang=gang, loader=loader)
        self._outer = OuterOptimizer(
            self._parameters,
            learning_rate=self._chosen["outer_learning_rate"],
            momentum=self._chosen["outer_momentum"],
        )

    @property
    def settings(self) -> dict[str, object]:
        names = ("outer_learning_rate", "outer_momentum")
        return {**super().settings, **{name: self._chosen[name] for name in names}}

    def save(self) -> object:
        return self._outer.save(), super().save()

    def restore(self, state: object) -> None:
        assert isinstance(state, tuple)
        outer, rest = state
        self._outer.restore(outer)
        super().restore(rest)

    def _average(self) -> None:
        super()._average()
        self._outer.step()


class OuterOptimizer:
    """Moves weights from where they were after the last outer step, by Nesterov's momentum.

    With the weights w, the mean m over ranks and g = w - m, the outer gradient: v <- mu v + g;
    w <- w - rate (g + mu v), which is PyTorch's Nesterov momentum (Douillard et al. 2023, "DiLoCo:
    Distributed low-communication training of language models", algorithm 1). With a rate of 1 and
    no momentum the weights become the mean.
    """

    def __init__(
        self, parameters: Sequence[torch.Tensor], *, learning_rate: float, momentum: float
    ) -> None:
        """Begin from what the parameters are now."""
        self._parameters = [parameter.detach() for parameter in parameters]
        self._weights = [parameter.clone() for parameter in self._parameters]
        self._sgd = torch.optim.SGD(
            self._weights, lr=learning_rate, momentum=momentum, nesterov=momentum > 0
        )

    def step(self) -> None:
        """Replace the mean over ranks, which the parameters have, by the weights of this step."""
        for weight, mean in zip(self._weights, self._parameters, strict=True):
            weight.grad = weight - mean
        self._sgd.step()
        for weight, parameter in zip(self._weights, self._parameters, strict=True):
            parameter.copy_(weight)

    def save(self) -> object:
        return copy.deepcopy(([w.detach() for w in self._weights], self._sgd.state_dict()))

    def restore(self, state: object) -> None:
        assert isinstance(state, tuple)
        weights, optimizer = copy.deepcopy(state)
        for weight, value in zip(self._weights, weights, strict=True):
            weight.copy_(value)
        self._sgd.load_state_dict(optimizer)
