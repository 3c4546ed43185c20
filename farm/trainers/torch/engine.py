"""One rank of PyTorch: model, optimizer and examples, under DistributedDataParallel in a gang.

The gradient of a rank is the sum over its own examples divided by the global batch size actually
used, so that the sum over ranks is the mean over the global batch however unevenly it is split.
DistributedDataParallel takes the mean over ranks, so each rank's loss is multiplied by their number
beforehand.

The initial weights are rank 0's. PyTorch's generator draws them from the job's seed: they are the
same for every world size, but not the numbers that TensorFlow draws from that seed.

Batch normalisation is over the examples of one rank, and so are its moving statistics: rank 0
evaluates with its own, which nothing sends around.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LambdaLR

from benchfarm.torch_trace import STEP, activities_of, communication_times
from farm.configuration.axes import MIB, spec_values
from farm.configuration.learning_rate import learning_rate_of
from farm.configuration.spec import (
    ActivationCheckpointing,
    Compilation,
    ComputePrecision,
    Optimizer,
    TrainingPass,
)
from farm.messages.trainer_lines import Exchange
from farm.trainers.contracts import Evaluation, Gang, MatrixProduct, RankContext, WeightSums
from farm.trainers.hyperparameters import (
    MOMENTUM,
    evaluation_parts,
    fixed_settings,
)
from farm.trainers.models.architecture import Architecture
from farm.trainers.models.checksum import checksum_of
from farm.trainers.torch.checkpointing import unchanged_statistics
from farm.trainers.torch.layers import build_module
from farm.trainers.torch.loader import BatchLoader

if TYPE_CHECKING:
    from farm.trainers.contracts import IndexArray

_NOTHING = contextlib.nullcontext()


def choose_device() -> torch.device:
    """Return the first GPU that is visible, or else the CPU."""
    return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")


def data_parallel(model: torch.nn.Module, *, bucket_bytes: float) -> DistributedDataParallel:
    """Let the backward pass of a model sum its gradients in buckets with those of its peers.

    A bucket ends with the gradient that makes it at least so large; the first at 1 MiB, so that
    something is sent early. With 25 MiB these are PyTorch's buckets unless told otherwise.
    """
    # Its single limit would be that of the first bucket, too.
    limits_mib: list[Any] = [min(1.0, bucket_bytes / MIB), bucket_bytes / MIB]
    # Moving statistics are not sent around with every step: rank 0 alone uses them.
    return DistributedDataParallel(model, broadcast_buffers=False, bucket_cap_mb_list=limits_mib)


class TorchEngine:
    """Drives a built model; the process group is connected and owned by the process."""

    def __init__(
        self,
        rank_context: RankContext,
        *,
        device: torch.device,
        gang: Gang,
        loader: BatchLoader | None = None,
    ) -> None:
        self.loader = loader
        self._gang = gang
        self._device = device
        self._placement = rank_context.job.placement
        self._world_size = rank_context.job.world_size
        self._is_forward = rank_context.job.training_pass is TrainingPass.FORWARD
        self._global_batch_size = rank_context.job.global_batch_size
        self._update_count = 0
        self._is_traced = False
        torch.manual_seed(rank_context.job.seed)
        self._model = self._built(rank_context)
        self._parameters = [p for p in self._model.parameters() if p.requires_grad]
        self._chosen: Mapping[str, Any] = spec_values(rank_context.job)
        self._rate = learning_rate_of(self._chosen)
        self._optimizer = _optimizer(self._parameters, self._chosen, rate=self._rate)
        self._schedule = _schedule(self._optimizer, self._chosen)
        self._part_count = int(cast(int, self._chosen["gradient_accumulation_steps"]))
        self._precision: AbstractContextManager[object] = _NOTHING
        if self._chosen["precision"] == ComputePrecision.BFLOAT16.value:
            self._precision = torch.autocast(device.type, torch.bfloat16)
        self._replica = self._distribute()
        self._doubles_one = not self._is_forward and self._normalises_one_value(rank_context)
        self._forward = self._model if self._is_forward else self._replica
        self._is_compiled = self._chosen["compile"] == Compilation.TORCH_COMPILE.value
        self._is_to_compile = self._is_compiled and not self._is_forward
        if self._is_compiled:
            # For each size of a batch apart, as a step has few: its own code is the fastest.
            self._forward = torch.compile(self._forward, dynamic=False)
        self._time_limit_s = rank_context.job.time_limit_s
        train = rank_context.data.train
        # All of them, or those of a step. Copies of all would take a GPU's memory.
        held = slice(None) if loader is None else slice(1)
        self._inputs = torch.from_numpy(train.inputs[held]).to(device)
        self._labels = torch.from_numpy(train.labels[held]).to(device)
        self._test = rank_context.data.test

    @property
    def parameter_count(self) -> int:
        return sum(p.numel() for p in self._parameters)

    @property
    def gradient_bytes(self) -> int:
        return sum(p.numel() * p.element_size() for p in self._parameters)

    @property
    def settings(self) -> dict[str, object]:
        """What was fixed: optimizer, learning rate, thread pools, placement, device."""
        fixed = fixed_settings(
            intra_op_threads=torch.get_num_threads(),
            inter_op_threads=torch.get_num_interop_threads(),
            placement=self._placement,
            is_on_gpu=self._device.type != "cpu",
        )
        is_sgd = self._chosen["optimizer"] == Optimizer.SGD.value
        return {
            **fixed,
            "optimizer": self._chosen["optimizer"],
            "learning_rate": self._rate,
            "momentum": MOMENTUM if is_sgd else None,
        }

    def matrix_product(self, side: int) -> MatrixProduct:
        """Return a product of two square matrices of that side, in the job's precision."""
        is_half = self._chosen["precision"] == ComputePrecision.BFLOAT16.value
        generator = torch.Generator(self._device).manual_seed(0)
        left, right, product = (
            torch.rand(
                (side, side),
                generator=generator,
                dtype=torch.bfloat16 if is_half else torch.float32,
                device=self._device,
            )
            for _ in range(3)
        )

        def run(count: int) -> None:
            for _ in range(count):
                torch.mm(left, right, out=product)
            if self._device.type == "cuda":
                torch.cuda.synchronize(self._device)

        return MatrixProduct(run=run, flop=2.0 * side**3)

    def take_device_memory_bytes(self) -> int | None:
        if self._device.type != "cuda":
            return None
        largest = torch.cuda.max_memory_allocated(self._device)
        torch.cuda.empty_cache()  # of what is not in use any more
        torch.cuda.reset_peak_memory_stats(self._device)
        return largest

    def step(self, indices: IndexArray, *, examples_count: int) -> float:
        indices = self._held(indices)
        self._count_update(examples_count)
        with self._marked_step(indices, examples_count=examples_count):
            if len(indices) == 0:
                # The peers wait for this rank's part of the sum: one example with weight zero. Not
                # as in training, where it would count in the moving statistics.
                self._run(np.zeros(1, np.int32), 0.0, is_training=False)
                return 0.0
            return self._run(indices, self._world_size / examples_count)

    def prepare_evaluation(self) -> None:
        return  # The weights are the same on every rank.

    def evaluate(self, on_batch: Callable[[], None]) -> Evaluation:
        loss_sum, correct_count = 0.0, 0
        for part in evaluation_parts(self._test.labels.shape):
            losses, correct = self._test_part(part)
            loss_sum, correct_count = loss_sum + losses, correct_count + correct
            on_batch()
        return self._evaluation_of(loss_sum, correct_count)

    @property
    def _state(self) -> Sequence[torch.optim.Optimizer | LambdaLR]:
        """What a training goes on with beside the weights."""
        return [self._optimizer, *([] if self._schedule is None else [self._schedule])]

    def save(self) -> object:
        return copy.deepcopy((self._model.state_dict(), [one.state_dict() for one in self._state]))

    def restore(self, state: object) -> None:
        assert isinstance(state, tuple)
        weights, others = copy.deepcopy(state)
        self._model.load_state_dict(weights)
        for one, saved in zip(self._state, others, strict=True):
            one.load_state_dict(saved)

    def weight_sums(self) -> WeightSums:
        return WeightSums.of(parameter.detach().double() for parameter in self._parameters)

    def weights_checksum(self) -> float:
        assert isinstance(self._model, _KerasModule)
        return checksum_of(self._model.layers.variables)

    def take_exchange(self) -> Exchange:
        """Return the updates in full steps; a collective is sending and waiting in one."""
        exchange = Exchange(update_count=self._update_count)
        self._update_count = 0
        return exchange

    def trace(self, run_steps: Callable[[], None]) -> tuple[float, ...] | None:
        self._is_traced = True
        try:
            with torch.profiler.profile(activities=activities_of(torch)) as profiler:
                run_steps()
            times_s = communication_times(profiler.events() or [])
        finally:
            self._is_traced = False
        if self._world_size == 1:
            return ()
        # The ranks did communicate, so without a collective the profiler has missed it.
        return tuple(times_s) if times_s and any(times_s) else None

    def wait_for_peers(self, name: str, *, timeout_s: float) -> None:
        self._gang.wait(name, timeout_s=timeout_s)

    def leave(self) -> None:
        self._gang.leave()
        if self.loader is not None:
            self.loader.close()

    def _held(self, indices: IndexArray) -> IndexArray:
        """Wait until the examples of a step are held; return where they are."""
        if self.loader is None:
            return indices
        inputs, labels = self.loader.next(indices)
        self._inputs, self._labels = inputs.to(self._device), labels.to(self._device)
        return np.arange(len(indices), dtype=np.int32)

    def _count_update(self, examples_count: int) -> None:
        # Of full steps alone: partial ones are not among the timed steps.
        self._update_count += not self._is_forward and examples_count == self._global_batch_size

    @contextlib.contextmanager
    def _marked_step(self, indices: IndexArray, *, examples_count: int) -> Iterator[None]:
        """Let a step run in this, so that a profiler tells steps apart and full ones are compiled.

        `indices`: of this rank's examples.
        """
        is_partial = examples_count < self._global_batch_size
        if self._is_to_compile and not is_partial:
            self._compile(indices)
            self._is_to_compile = False
        # Each other size would be compiled in the middle of an epoch.
        is_eager = self._is_compiled and is_partial
        stance = torch.compiler.set_stance("force_eager") if is_eager else _NOTHING
        with stance, torch.profiler.record_function(STEP) if self._is_traced else _NOTHING:
            yield

    def _compile(self, indices: IndexArray) -> None:
        """Compile for the parts of a full step, without exchange or update, and await the peers.

        Ranks compile at their own pace, for longer than a collective may wait for a peer.
        """
        self._model.train()
        parts = self._parts(indices) if len(indices) > 0 else ()
        with self._without_exchange(), unchanged_statistics([self._model]):
            for part in {len(part): part for part in parts}.values():
                self._add_gradients(part, 0.0)
        self._gang.wait("compiled", timeout_s=self._time_limit_s)

    def _test_part(self, part: slice) -> tuple[float, int]:
        """Return of some test examples the sum of losses and how many were told right."""
        inputs = torch.from_numpy(self._test.inputs[part]).to(self._device)
        labels = torch.from_numpy(self._test.labels[part]).to(self._device)
        self._model.eval()
        with torch.no_grad(), self._precision:
            logits = self._model(model_input(inputs))
            correct_count = int((logits.argmax(-1) == labels).sum())
            return float(sum_of_losses(logits, labels)), correct_count

    def _evaluation_of(self, loss_sum: float, correct_count: float) -> Evaluation:
        labels = self._test.labels
        return Evaluation(
            val_loss=loss_sum / len(labels),
            val_accuracy_ratio=correct_count / int((labels >= 0).sum()),
        )

    def _built(self, rank_context: RankContext) -> torch.nn.Module:
        return _build(rank_context).to(self._device)

    def _distribute(self) -> Any:
        """Return what a training step calls. In a gang it sends rank 0's weights to the others."""
        if self._world_size == 1:
            return self._model
        return data_parallel(self._model, bucket_bytes=self._chosen["gradient_bucket_bytes"])

    def _normalises_one_value(self, rank_context: RankContext) -> bool:
        """Return whether some batch normalisation gets one value a channel from one example."""
        counts: list[int] = []
        normalising = [m for m in self._model.modules() if isinstance(m, torch.nn.BatchNorm2d)]
        if not normalising:
            return False
        handles = [
            layer.register_forward_pre_hook(
                lambda _, inputs: counts.append(inputs[0][0, 0].numel())
            )
            for layer in normalising
        ]
        self._model.eval()
        with torch.no_grad():
            self._model(torch.zeros(1, *rank_context.dataset.example_shape, device=self._device))
        for handle in handles:
            handle.remove()
        return 1 in counts

    def _penalties(self) -> Sequence[torch.Tensor]:
        """Return the losses of the model's own, such as its regularisers', of the last call."""
        return self._model.layers.losses if isinstance(self._model, _KerasModule) else ()

    def _run(self, indices: IndexArray, scale: float, *, is_training: bool = True) -> float:
        """Return the sum of the losses of a step whose gradients are multiplied by `scale`."""
        if self._is_forward:
            inputs, labels = self._examples(indices)
            self._model.eval()
            with torch.no_grad(), self._precision:
                return float(sum_of_losses(self._forward(inputs), labels))
        if self._model.training != is_training:
            self._model.train(is_training)
        self._optimizer.zero_grad()
        *parts, last = self._parts(indices)
        loss_sum = 0.0
        for part in parts:
            with self._without_exchange():
                loss_sum += self._add_gradients(part, scale)
        loss_sum += self._add_gradients(last, scale)
        self._optimizer.step()
        self._advance_schedule()
        return loss_sum

    def _advance_schedule(self) -> None:
        if self._schedule is not None:
            self._schedule.step()

    def _parts(self, indices: IndexArray) -> Sequence[IndexArray]:
        """Return the parts in which a step's gradients are computed."""
        # The last batch of an epoch may have fewer examples than parts.
        return np.array_split(indices, min(self._part_count, len(indices)))

    def _without_exchange(self) -> AbstractContextManager[None]:
        """Return what all parts of a step but the last run in."""
        does_exchange = isinstance(self._replica, DistributedDataParallel)
        return self._replica.no_sync() if does_exchange else _NOTHING

    def _add_gradients(self, indices: IndexArray, scale: float) -> float:
        """Add the gradients of some examples, times `scale`; return the sum of their losses."""
        if len(indices) == 1 and self._doubles_one and self._model.training:
            # PyTorch refuses the variance of one value. That of two equal ones is 0, which is what
            # TensorFlow takes it for.
            return self._add_gradients(np.repeat(indices, 2), scale / 2) / 2
        inputs, labels = self._examples(indices)
        with self._precision:
            logits = self._forward(inputs)
        loss_sum = sum_of_losses(logits, labels, penalties=self._penalties())
        torch.autograd.backward(loss_sum * scale)
        return float(loss_sum.detach())

    def _examples(self, indices: IndexArray) -> tuple[torch.Tensor, torch.Tensor]:
        chosen = torch.from_numpy(indices).to(self._device)
        return model_input(self._inputs[chosen]), self._labels[chosen]


def _optimizer(
    parameters: Sequence[torch.nn.Parameter], chosen: Mapping[str, object], *, rate: float
) -> torch.optim.Optimizer:
    if chosen["optimizer"] == Optimizer.ADAMW.value:
        return torch.optim.AdamW(parameters, lr=rate)
    return torch.optim.SGD(parameters, lr=rate, momentum=MOMENTUM)


def _schedule(optimizer: torch.optim.Optimizer, chosen: Mapping[str, Any]) -> LambdaLR | None:
    """Return what raises the rate over the first steps, from one part of as many on, or None.

    Goyal et al. 2017, section 2.2.
    """
    step_count = chosen["lr_warmup_steps"]
    if step_count <= 1:
        return None  # so that a step does nothing that it did not do before there was a schedule
    return LambdaLR(optimizer, lambda done_count: min(1.0, (done_count + 1) / step_count))


class _KerasModule(torch.nn.Module):
    """A user's own model of Keras layers, which are to be told whether they are trained."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.layers = model

    def forward(self, inputs: Any) -> Any:
        return self.layers(inputs, training=self.training)


def _build(rank_context: RankContext) -> torch.nn.Module:
    shape, class_count = rank_context.dataset.example_shape, rank_context.dataset.class_count
    if isinstance(rank_context.model, Architecture):
        chosen = spec_values(rank_context.job)["activation_checkpointing"]
        is_checkpointed = chosen == ActivationCheckpointing.ON.value
        return build_module(
            rank_context.model.lay_out, shape, class_count, is_checkpointed=is_checkpointed
        )
    import keras

    keras.utils.set_random_seed(rank_context.job.seed)
    return _KerasModule(rank_context.model.build(shape, class_count))


def model_input(inputs: torch.Tensor) -> torch.Tensor:
    """Return images, which stay in memory as bytes, as floats from 0 to 1; tokens as they are."""
    return inputs.to(torch.float32) / 255.0 if inputs.dtype == torch.uint8 else inputs


def sum_of_losses(
    logits: torch.Tensor, labels: torch.Tensor, *, penalties: Sequence[torch.Tensor] = ()
) -> torch.Tensor:
    """Return the sum of losses, with each penalty once an example: see TensorFlow's `loss_sum`."""
    losses = functional.cross_entropy(
        logits.float().flatten(0, -2), labels.flatten(), ignore_index=-1, reduction="none"
    )
    if labels.dim() == 2:
        losses = losses.view_as(labels).sum(1) / (labels >= 0).sum(1)
    total = losses.sum()
    for penalty in penalties:
        total = total + penalty.float().sum() * len(labels)
    return total
