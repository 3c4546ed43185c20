"""One rank of PyTorch that holds a stage of a model: pipeline parallelism by torch's `pipelining`.

A stage is a sequence of blocks of layers. Each rank draws the weights of all stages, so the weights
equal those of one rank, and keeps its own. A batch goes through the stages in equal microbatches,
one after the other, and its gradients come back in as many (GPipe, Huang et al. 2019). That stores
the activations of a whole batch. In return a stage never waits for the next one before it begins a
microbatch, as it does in the schedule 1F1B. So n stages wait for 2 (n - 1) one-way delays in a
step. Only the first and the last stage read the batch. It has not been tested between GPUs.

If several stages read a table, such as embeddings that also compute the logits, each of them has a
copy, and the gradients are summed over the copies. The last rank sends the sum of a step's losses
to all others. Batch normalisation is over a microbatch, and each stage has its own moving
statistics.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

from farm.configuration.axes import spec_values
from farm.configuration.model_size import PipelineCut
from farm.trainers.contracts import RankContext
from farm.trainers.hyperparameters import evaluation_parts
from farm.trainers.models.architecture import Architecture
from farm.trainers.torch.engine import model_input, sum_of_losses
from farm.trainers.torch.layers import build_stage
from farm.trainers.torch.partitioned import PartitionedEngine

if TYPE_CHECKING:
    from farm.trainers.contracts import IndexArray

# Of messages with losses, since those between stages have 0.
_LOSS_TAG = 1


class PipelinedEngine(PartitionedEngine):
    """Trains what `TorchEngine` trains, with the whole batch on every rank."""

    def step(self, indices: IndexArray, *, examples_count: int) -> float:
        """Run one step; return the sum of the losses of the whole batch on every rank."""
        self._count_update(examples_count)
        with self._marked_step(indices, examples_count=examples_count):
            if self._normalises and len(indices) == 1:
                # See `TorchEngine`: PyTorch refuses the variance of one value.
                return self._run(np.repeat(indices, 2), 0.5) / 2
            return self._run(indices, 1 / examples_count)

    def prepare_evaluation(self) -> None:
        """Let the test split go through the stages, and give every rank the last one's result."""
        sums = torch.zeros(2, dtype=torch.float64)
        for part in evaluation_parts(self._test.labels.shape):
            sums += torch.tensor(self._test_part(part), dtype=torch.float64)
        self._evaluation = self._evaluation_of(*self._summed(sums))

    @property
    def parameter_count(self) -> int:
        """Return those of the whole model."""
        return self._size.parameter_count

    @property
    def gradient_bytes(self) -> int:
        return self._size.gradient_bytes

    @property
    def settings(self) -> dict[str, object]:
        """Return also how many bytes of weights each stage holds, tables among them."""
        table_bytes = self._size.table_bytes
        held = [s.weight_bytes + sum(table_bytes[t] for t in s.tables) for s in self._stages]
        return {**super().settings, "weight_bytes_by_stage": held}

    @property
    def _is_first(self) -> bool:
        return self._rank == 0

    @property
    def _is_last(self) -> bool:
        return self._rank == self._world_size - 1

    def _built(self, rank_context: RankContext) -> torch.nn.Module:
        assert isinstance(rank_context.model, Architecture)
        self._rank = dist.get_rank()
        shape, class_count = rank_context.dataset.example_shape, rank_context.dataset.class_count
        self._size = rank_context.model.describe(shape, class_count)
        by = PipelineCut(spec_values(rank_context.job)["pipeline_cut"])
        ends = self._size.stage_ends(self._world_size, by=by)
        stages = self._size.stages(self._world_size, by=by)
        assert ends is not None, "such a job is not queued"
        assert stages is not None
        self._stages = stages
        blocks = range((0, *ends)[self._rank], ends[self._rank])
        self._stage = build_stage(rank_context.model.lay_out, shape, class_count, blocks=blocks)
        return self._stage.to(self._device)

    def _distribute(self) -> Any:
        self._schedules: dict[tuple[int, bool], ScheduleGPipe] = {}
        self._normalises = self._size.statistics_count > 0
        self._shared = dict(self._groups_of_tables())
        return _InPrecision(self._model, self._precision)

    def _groups_of_tables(self) -> Iterator[tuple[int, Any]]:
        """Yield of each table that several stages read its number and the group of their ranks."""
        for table in range(len(self._size.table_bytes)):
            readers = [rank for rank, stage in enumerate(self._stages) if table in stage.tables]
            if len(readers) > 1:
                # Ranks that are not among them take part in this, too.
                yield table, dist.new_group(readers)

    def _normalises_one_value(self, rank_context: RankContext) -> bool:
        del rank_context
        return False  # see `step`

    def _own_weights(self) -> Iterable[torch.Tensor]:
        before = {table for stage in self._stages[: self._rank] for table in stage.tables}
        counted = {id(weights) for table, weights in self._stage.tables.items() if table in before}
        return (p.detach() for p in self._parameters if id(p) not in counted)

    def _run(self, indices: IndexArray, scale: float, *, is_training: bool = True) -> float:
        """Return the sum of the losses of a step whose gradients are multiplied by `scale`."""
        del is_training
        total = torch.zeros(1, dtype=torch.float64)
        last = self._world_size - 1
        # Before anything else, so that the last rank need not wait for it.
        sent = [] if self._is_last else [dist.irecv(total, last, tag=_LOSS_TAG)]
        chosen = torch.from_numpy(indices).to(self._device)
        inputs = model_input(self._inputs[chosen]) if self._is_first else None
        labels = self._labels[chosen] if self._is_last else None
        if self._is_forward:
            logits = self._passed(inputs, len(indices))
            if labels is not None:
                total += float(sum_of_losses(logits, labels))
        else:
            total += self._train(inputs, labels, len(indices), scale)
        if self._is_last:
            sent = [dist.isend(total, rank, tag=_LOSS_TAG) for rank in range(last)]
        _wait([work for work in sent if work is not None])
        if not self._is_forward:
            self._update()
        return total.item()

    def _train(self, inputs: Any, labels: Any, examples_count: int, scale: float) -> float:
        """Add the gradients of a batch; return the sum of its losses on the last rank, else 0."""
        self._model.train()
        self._optimizer.zero_grad()
        losses: list[torch.Tensor] = []
        with _unwrapped():
            self._schedule_for(examples_count, has_backward=True).step(
                *([] if inputs is None else [inputs]),
                target=labels,
                losses=losses,
                return_outputs=False,
                loss_kwargs={"scale": scale},
            )
        return sum(loss.item() for loss in losses) / scale

    def _update(self) -> None:
        for table, group in self._shared.items():
            if table in self._stage.tables:
                dist.all_reduce(self._stage.tables[table].grad, group=group)
        self._optimizer.step()
        self._advance_schedule()

    def _passed(self, inputs: Any, examples_count: int) -> Any:
        """Pass a batch through the stages; return the logits on the last rank, None on others."""
        self._model.eval()
        with torch.no_grad(), _unwrapped():
            schedule = self._schedule_for(examples_count, has_backward=False)
            return schedule.step(*([] if inputs is None else [inputs]))

    def _test_part(self, part: slice) -> tuple[float, int]:
        labels = torch.from_numpy(self._test.labels[part]).to(self._device)
        inputs = torch.from_numpy(self._test.inputs[part]).to(self._device)
        logits = self._passed(model_input(inputs) if self._is_first else None, len(labels))
        if logits is None:
            return 0.0, 0
        correct_count = int((logits.argmax(-1) == labels).sum())
        return float(sum_of_losses(logits, labels)), correct_count

    def _schedule_for(self, examples_count: int, *, has_backward: bool) -> ScheduleGPipe:
        """Return the schedule for a batch of that size: what stages send has a shape of its own."""
        known = self._schedules.get((examples_count, has_backward))
        if known is not None:
            return known
        count = _microbatch_count(
            examples_count,
            most=self._chosen["pipeline_microbatches"],
            least_size=2 if self._normalises else 1,
        )
        received, returned = (
            torch.empty(examples_count // count, *shape, device="meta", requires_grad=has_backward)
            for shape in self._stage.shapes
        )
        if self._is_first:
            received = model_input(self._inputs[: examples_count // count]).to("meta")
        # NCCL does one thing after the other, and would wait for gradients before it sends.
        kind = _PromptStage if self._device.type == "cpu" else PipelineStage
        stage = kind(
            self._replica,
            self._rank,
            self._world_size,
            self._device,
            input_args=received,
            output_args=returned,
        )
        schedule = ScheduleGPipe(
            stage, count, loss_fn=_scaled_loss if has_backward else None, scale_grads=False
        )
        self._schedules[examples_count, has_backward] = schedule
        return schedule


class _PromptStage(PipelineStage):
    """A stage that asks for all that it will receive in a step at the step's begin.

    Gloo sends a message once its receiver has asked for it. PyTorch's schedules ask when they come
    to a microbatch, so that each costs a round trip: with four microbatches of the MLP in two
    stages, 20 ms apart, a step took 301 ms, and 46 ms like this.
    """

    def get_fwd_recv_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        """Return nothing that is left to do: what the microbatch needs has arrived."""
        if fwd_chunk_id == 0:
            count = len(self.args_recv_info)
            ask, ask_back = super().get_fwd_recv_ops, super().get_bwd_recv_ops
            self._inputs = [_begun(ask(i)) for i in range(count)]
            self._gradients = [_begun(ask_back(i)) for i in range(count)]
        _wait(self._inputs[fwd_chunk_id])
        return []

    def get_bwd_recv_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        _wait(self._gradients[bwd_chunk_id])
        return []


def _begun(operations: list[dist.P2POp]) -> list[dist.Work]:
    return dist.batch_isend_irecv(operations) if operations else []


def _wait(begun: list[dist.Work]) -> None:
    for work in begun:
        work.wait()


class _InPrecision(torch.nn.Module):
    """A stage that computes in a precision and hands on float32."""

    def __init__(self, stage: torch.nn.Module, precision: AbstractContextManager[object]) -> None:
        super().__init__()
        self.stage = stage
        self._precision = precision

    def forward(self, inputs: Any) -> Any:
        with self._precision:
            outputs = self.stage(inputs)
        # A message is one piece of memory.
        return outputs.float().contiguous()


def _scaled_loss(logits: torch.Tensor, labels: torch.Tensor, *, scale: float) -> torch.Tensor:
    return sum_of_losses(logits, labels) * scale


def _microbatch_count(examples_count: int, *, most: int, least_size: int) -> int:
    """Return into how many equal microbatches a batch is cut: as many as can be, up to `most`.

    An epoch's last batch may be of any size; others are multiples of `most`.
    """
    most = max(1, min(most, examples_count // least_size))
    return next(count for count in range(most, 0, -1) if examples_count % count == 0)


@contextlib.contextmanager
def _unwrapped() -> Iterator[None]:
    """Raise what a layer has raised, such as that there is no memory left.

    PyTorch's pipelining makes a RuntimeError of it, from which nobody can tell what it was.
    """
    try:
        yield
    except RuntimeError as error:
        if error.__cause__ is None:
            raise
        raise error.__cause__ from None
