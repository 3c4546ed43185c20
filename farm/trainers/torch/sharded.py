"""One rank of PyTorch that holds a shard of every weight: fully sharded data parallel (FSDP2).

A rank has a share of each weight, of its gradient and of the optimizer's state. The layers are
divided into units. All ranks gather a unit's weights before its forward and its backward pass, and
free them afterwards. A unit's gradients are summed as soon as they are known, and each rank keeps
the sum of its share. So each pass through the model is a collective, in which every rank must take
part.

No rank ever has the whole model: units are sharded while it is built. All ranks evaluate it
together, each on a share of the test split. With batch normalisation each rank uses its own moving
statistics.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from farm.configuration.model_size import SHARDED_UNIT_BYTES
from farm.trainers.contracts import RankContext
from farm.trainers.hyperparameters import evaluation_parts
from farm.trainers.loop.batches import share
from farm.trainers.models.architecture import Architecture
from farm.trainers.torch.layers import build_module
from farm.trainers.torch.partitioned import PartitionedEngine

if TYPE_CHECKING:
    from farm.trainers.contracts import IndexArray


class ShardedEngine(PartitionedEngine):
    """Trains what `TorchEngine` trains, with its weights spread over the gang.

    Each rank passes through the model as often as every other: a part of a step that has no
    examples on a rank is one example with weight zero.
    """

    def prepare_evaluation(self) -> None:
        """Evaluate a share of each part of the test split on every rank, and add the results up."""
        sums = torch.zeros(2, dtype=torch.float64)
        shape = self._test.labels.shape
        for part in evaluation_parts(shape):
            examples = range(shape[0])[part]
            mine = share(len(examples), world_size=self._world_size, rank=dist.get_rank())
            own = examples[mine.start : mine.stop]
            # A rank without examples sends its shards nonetheless.
            found = self._test_part(slice(own.start, own.stop) if own else slice(0, 1))
            sums += torch.tensor(found, dtype=torch.float64) * bool(own)
        self._evaluation = self._evaluation_of(*self._summed(sums))

    def _built(self, rank_context: RankContext) -> torch.nn.Module:
        assert isinstance(rank_context.model, Architecture)
        return _sharded_module(
            rank_context.model,
            rank_context.dataset.example_shape,
            rank_context.dataset.class_count,
            device=self._device,
            world_size=self._world_size,
        )

    def _own_weights(self) -> Iterator[torch.Tensor]:
        shards: Iterator[Any] = (parameter.detach() for parameter in self._parameters)
        return (shard.to_local() for shard in shards)

    def _parts(self, indices: IndexArray) -> Sequence[IndexArray]:
        """Return as many parts as on every other rank; the last ones may be empty."""
        return np.array_split(indices, self._part_count)

    @contextlib.contextmanager
    def _without_exchange(self) -> Iterator[None]:
        assert isinstance(self._model, FSDPModule)
        self._model.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            self._model.set_requires_gradient_sync(True)

    def _add_gradients(self, indices: IndexArray, scale: float) -> float:
        if len(indices) > 0:
            return super()._add_gradients(indices, scale)
        # Not as in training, where it would count in the moving statistics.
        is_training = self._model.training
        self._model.eval()
        super()._add_gradients(np.zeros(1, np.int32), 0.0)
        self._model.train(is_training)
        return 0.0


class DirectReduceScatter:
    """A reduce-scatter between CPUs in which each rank sends every other its part, to be summed.

    Gloo's own sums everything on every rank as in an all-reduce and throws away all but a part:
    with 2 ranks and 4 MB it sent twice the bytes and took 8.1 ms, this one 4.0 ms.
    """

    def allocate(
        self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> None:
        """Write the mean over the ranks of their parts of `input_tensor` for this one."""
        assert op == dist.ReduceOp.AVG, op
        assert not async_op
        parts = torch.empty_like(input_tensor)
        dist.all_to_all_single(parts, input_tensor, group=group)
        torch.mean(parts.view(-1, output_tensor.numel()), 0, out=output_tensor)


def _sharded_module(
    model: Architecture,
    example_shape: tuple[int, ...],
    class_count: int,
    *,
    device: torch.device,
    world_size: int,
) -> torch.nn.Module:
    """Build a model unit by unit, each of which is sharded before the next one is built."""
    mesh = init_device_mesh(device.type, (world_size,))
    unit: list[torch.nn.Module] = []

    def shard() -> None:
        if unit:
            fully_shard(unit.copy(), mesh=mesh, reshard_after_forward=True)
            unit.clear()

    def add(layer: torch.nn.Module) -> None:
        if _weight_bytes([layer]):
            unit.append(layer)
        if _weight_bytes(unit) >= SHARDED_UNIT_BYTES:
            shard()

    module = build_module(model.lay_out, example_shape, class_count, on_layer=add)
    shard()
    # What is left, the tables, is gathered for as long as a pass lasts.
    fully_shard(module, mesh=mesh, reshard_after_forward=True)
    if device.type == "cpu":
        for part in module.modules():
            if isinstance(part, FSDPModule):
                part.set_custom_reduce_scatter(DirectReduceScatter())  # type: ignore[arg-type]
    return module


def _weight_bytes(layers: Sequence[torch.nn.Module]) -> int:
    trained = (p for layer in layers for p in layer.parameters() if p.requires_grad)
    return sum(p.numel() * p.element_size() for p in trained)
