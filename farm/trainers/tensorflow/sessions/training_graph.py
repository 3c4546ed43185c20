"""Builds one rank's graph: pull weights, compute, push gradients.

A step is a single run. Computing begins once all weights have arrived, and timestamps of the rank's
own clock separate the parts of a step (`StepOutputs`). If the first layers began while later
weights still arrive, that would hide some of the pull; with one thread the timestamps were even
late by the whole step. Sending does overlap with computing.

Synchronous sums are exact: accumulators on the weight host add up the gradients of the n ranks, and
the chief's run takes the sum once all have arrived. Each rank then continues with a token from a
queue of its own, which no faster rank can take.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from farm.trainers.contracts import Examples
from farm.trainers.hyperparameters import LEARNING_RATE, MOMENTUM
from farm.trainers.model_files.model_check import call_with
from farm.trainers.tensorflow.loss import loss_sum, model_input
from farm.trainers.tensorflow.sessions.scheme import RankScheme, Scheme

if TYPE_CHECKING:
    from numpy.typing import NDArray

v1 = tf.compat.v1

# An accumulator drops what was pushed for an earlier step than its own; order is the tokens' part.
_NEVER_LATE = 2**62
_PART_BYTES = 256 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutputs:
    """What a step returns. Time-stamps are in s of this machine's clock (CLOCK_REALTIME).

    `begun`: the examples are here and the run begins; `exchanged`: the rank has all that it waits
    for of the others. Between these and the stamps of computing it exchanges; before and after, and
    where it applies what has come to weights of its own, it works by itself.

    `updates_before`, `updates_after`: updates by anybody, when the weights were read and right
    before this rank's was counted; None where nothing is counted.
    """

    loss_sum: Any
    begun: Any
    computing_begun: Any
    computing_ended: Any
    exchanged: Any = None
    pushed: Any = None
    updates_before: Any = None
    updates_after: Any = None


class TrainingGraph:
    """Operations of one rank, fed with parts of `train`.

    `weights` and `others` are initial values, in the model's order.
    """

    def __init__(
        self,
        plan: RankScheme,
        model: Any,
        *,
        train: Examples,
        weights: list[NDArray[Any]],
        others: list[NDArray[Any]],
    ) -> None:
        self._plan = plan
        self._model = model
        self.graph = tf.Graph()
        with self.graph.as_default():
            self._add_variables(weights, others)
            self.inputs, self.labels = (
                v1.placeholder(array.dtype, (None, *array.shape[1:]))
                for array in (train.inputs, train.labels)
            )
            self.scale = v1.placeholder(tf.float32, ())
            self._done: list[Any] = []
            self.outputs = self._step()
            self.done = tf.group(*self._done)
            self.barrier = self._barrier()

    def _add_variables(self, weights: list[NDArray[Any]], others: list[NDArray[Any]]) -> None:
        plan = self._plan
        weight_hosts = [plan.weight_host_devices[home] for home in plan.homes]
        own = [plan.own_device] * len(weights)

        def group(
            name: str, values: list[NDArray[Any]], devices: list[str]
        ) -> list[_GraphVariable]:
            pairs = enumerate(zip(values, devices, strict=True))
            return [_GraphVariable.create(f"{name}/{i}", v, device) for i, (v, device) in pairs]

        has_servers, has_copies = plan.scheme.has_servers, plan.scheme.has_copies
        self._kept = group("kept", weights, weight_hosts) if has_servers else []
        self._copies = group("copies", weights, own) if has_copies else []
        self._momenta = group("momenta", weights, weight_hosts if has_servers else own)
        # Such as the moving statistics of batch normalisation: each rank has its own.
        self._others = group("others", others, [plan.own_device] * len(others))
        self._update_count = _GraphVariable.create(
            "updates", np.zeros((), np.int64), plan.weight_host_devices[0]
        )
        local = [*self._copies, *([] if has_servers else self._momenta), *self._others]
        shared = [*self._kept, *self._momenta, self._update_count] if has_servers else []
        self.local, self.shared = _VariableGroup(local), _VariableGroup(shared)
        self.weights = _VariableGroup(self._kept or self._copies)
        self.others = _VariableGroup(self._others)

    def initial(
        self, weights: list[NDArray[Any]], others: list[NDArray[Any]]
    ) -> tuple[list[NDArray[Any]], list[NDArray[Any]]]:
        """Return what `shared` and `local` are loaded with at first."""
        zeros = [np.zeros_like(w) for w in weights]
        copies = weights if self._plan.scheme.has_copies else []
        if self._plan.scheme.has_servers:
            return [*weights, *zeros, np.zeros((), np.int64)], [*copies, *others]
        return [], [*copies, *zeros, *others]

    def _step(self) -> StepOutputs:
        plan = self._plan
        updates_before, received = self._receive()
        computing_begun = self._stamp(received)
        with tf.device(plan.own_device), tf.control_dependencies([computing_begun]):
            weights = [tf.identity(value) for value in received]
        summed, gradients = self._compute(weights)
        computing_ended = self._stamp([summed, *gradients])
        outputs = {
            "loss_sum": summed,
            "begun": self._stamp([self.inputs, self.labels, self.scale]),
            "computing_begun": computing_begun,
            "computing_ended": computing_ended,
        }
        if plan.is_forward:
            return StepOutputs(**outputs)
        if plan.scheme is Scheme.PS_ASYNC:
            applied = [self._apply(i, gradient) for i, gradient in enumerate(gradients)]
            # It counts and tells in one, so that no two updates have the same number.
            with tf.device(plan.weight_host_devices[0]), tf.control_dependencies(applied):
                updates_after = tf.raw_ops.ResourceCountUpTo(
                    resource=self._update_count.handle, limit=2**62, T=tf.int64
                )
            outputs |= {"updates_before": updates_before, "updates_after": updates_after}
            return StepOutputs(**outputs, exchanged=self._stamp([updates_after]))
        accumulators, pushes = self._push(gradients)
        together = plan.scheme is not Scheme.CENTRAL_REDUCE
        received = self._apply_together(accumulators) if together else self._reduce(accumulators)
        return StepOutputs(**outputs, pushed=self._stamp(pushes), exchanged=self._stamp(received))

    def _receive(self) -> tuple[Any, list[Any]]:
        """Return the count of updates and the weights to compute with, on this rank's device.

        On the first weight host the count is read first, so that no update of its weights is
        missed; with several of them an update may have reached some and not others.
        """
        plan = self._plan
        if plan.scheme.has_copies:
            return None, [copy.read() for copy in self._copies]
        if plan.scheme is not Scheme.PS_ASYNC:
            return None, self._to_own_device([kept.read() for kept in self._kept])
        updates = self._update_count.read()
        values = []
        for kept, home in zip(self._kept, plan.homes, strict=True):
            with tf.control_dependencies([updates] if home == 0 else []):
                values.append(kept.read())
        return updates, self._to_own_device(values)

    def _to_own_device(self, values: Sequence[Any]) -> list[Any]:
        with tf.device(self._plan.own_device):
            return [tf.identity(value) for value in values]

    def _stamp(self, after: Sequence[Any]) -> Any:
        own_cpu = f"{self._plan.own_device.partition('/device')[0]}/device:CPU:0"
        with tf.device(own_cpu), tf.control_dependencies(after):
            return tf.timestamp()

    def _compute(self, weights: list[Any]) -> tuple[Any, list[Any]]:
        """Return the sum of the losses and, unless only the forward pass is run, the gradients."""
        is_forward = self._plan.is_forward
        with tf.device(self._plan.own_device):
            others = [variable.read() for variable in self._others]
            variables = [*self._model.trainable_variables, *self._model.non_trainable_variables]
            logits, others, penalties = call_with(
                self._model,
                list(zip(variables, [*weights, *others], strict=True)),
                model_input(self.inputs),
                training=not is_forward,
            )
            if is_forward:
                return loss_sum(logits, self.labels), []
            summed = loss_sum(logits, self.labels, penalties=penalties)
            for variable, value in zip(self._others, others, strict=True):
                self._done.append(variable.assign(value))
            gradients = v1.gradients(summed * self.scale, weights)
            # That of an embedding has rows alone.
            return summed, [tf.convert_to_tensor(gradient) for gradient in gradients]

    def _apply(self, weight: int, gradient: Any) -> Any:
        """Take Keras's SGD step: m <- 0.9 m - lr g; w <- w + m. Where the weight is."""
        variable = (self._kept or self._copies)[weight]
        with tf.device(variable.device):
            return tf.raw_ops.ResourceApplyKerasMomentum(
                var=variable.handle,
                accum=self._momenta[weight].handle,
                lr=LEARNING_RATE,
                grad=gradient,
                momentum=MOMENTUM,
                use_locking=True,
            )

    def _push(self, gradients: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Add this rank's gradients to the weight hosts' sums."""
        accumulators, pushes = [], []
        for i, gradient in enumerate(gradients):
            with tf.device(self._plan.weight_host_devices[self._plan.homes[i]]):
                accumulator = v1.ConditionalAccumulator(
                    gradient.dtype,
                    shape=gradient.shape,
                    shared_name=f"sum/{i}",
                    reduction_type="SUM",
                )
                pushes.append(accumulator.apply_grad(gradient, local_step=_NEVER_LATE))
            accumulators.append(accumulator)
        return accumulators, pushes

    def _take(self, accumulators: Sequence[Any], weight: int) -> Any:
        with tf.device(self._plan.weight_host_devices[self._plan.homes[weight]]):
            return accumulators[weight].take_grad(self._plan.world_size)

    def _apply_together(self, accumulators: Sequence[Any]) -> list[Any]:
        """Let each weight host apply its sums and then hand out tokens; replicas then pull.

        Returns what this rank receives in the end.
        """
        plan = self._plan
        received = []
        for weight_host in plan.used_weight_hosts:
            here = [i for i, home in enumerate(plan.homes) if home == weight_host]
            with tf.device(plan.weight_host_devices[weight_host]):
                queues = self._queues(f"applied/{weight_host}", [tf.int32], [()])
                if plan.is_chief:
                    applied = [self._apply(i, self._take(accumulators, i)) for i in here]
                    with tf.control_dependencies(applied):
                        self._done += [queue.enqueue(np.int32(0)) for queue in queues]
                token = queues[plan.rank].dequeue()
            self._done.append(token)
            received.append(token)
            if plan.scheme is Scheme.REPLICATED:
                with tf.control_dependencies([token]):
                    fresh = self._to_own_device([self._kept[i].read() for i in here])
                received += fresh
                copies = (self._copies[i] for i in here)
                self._done += [c.assign(f) for c, f in zip(copies, fresh, strict=True)]
        return received

    def _reduce(self, accumulators: Sequence[Any]) -> list[Any]:
        """Let rank 0 sum and every rank, rank 0 among them, apply the sum to its own copy.

        Returns the sums, where this rank has them.
        """
        plan = self._plan
        with tf.device(plan.weight_host_devices[0]):
            queues = self._queues(
                "sums", [c.dtype for c in self._copies], [c.shape for c in self._copies]
            )
            if plan.is_chief:
                sums = [self._take(accumulators, i) for i in range(len(self._copies))]
                self._done += [queue.enqueue(sums) for queue in queues[1:]]
            else:
                dequeued = queues[plan.rank].dequeue()
                sums = dequeued if isinstance(dequeued, list) else [dequeued]
        sums = self._to_own_device(sums)
        self._done += [self._apply(i, total) for i, total in enumerate(sums)]
        return sums

    def _queues(self, name: str, dtypes: list[Any], shapes: list[Any]) -> list[Any]:
        """Return a queue for each rank, on the current device."""
        return [
            v1.FIFOQueue(-1, dtypes, shapes=shapes, shared_name=f"{name}/for-{rank}")
            for rank in range(self._plan.world_size)
        ]

    def _barrier(self) -> Any:
        """Tell every rank that this one has come, and wait for as many words as there are ranks.

        A rank that passes has a word of each rank, of this barrier or of the next, which its
        sender has only reached because all had come to this one.
        """
        with tf.device(self._plan.weight_host_devices[0]):
            queues = self._queues("barrier", [tf.int32], [()])
            sent = [queue.enqueue(np.int32(0)) for queue in queues]
            heard = queues[self._plan.rank].dequeue_many(self._plan.world_size)
            return tf.group(*sent, heard)


@dataclass(frozen=True, slots=True, kw_only=True)
class _GraphVariable:
    """Shared by name between sessions.

    Without a value until one is loaded, which keeps gigabytes out of the graph's definition.
    """

    handle: Any
    dtype: Any
    shape: tuple[int, ...]
    device: str

    @classmethod
    def create(cls, name: str, like: NDArray[Any], device: str) -> _GraphVariable:
        """Add one of the shape and type of `like`. Processes share it by `name` on its device."""
        dtype = tf.as_dtype(like.dtype)
        with tf.device(device):
            handle = tf.raw_ops.VarHandleOp(dtype=dtype, shape=like.shape, shared_name=name)
        return cls(handle=handle, dtype=dtype, shape=like.shape, device=device)

    def read(self) -> Any:
        with tf.device(self.device):
            return tf.raw_ops.ReadVariableOp(resource=self.handle, dtype=self.dtype)

    def assign(self, value: Any) -> Any:
        with tf.device(self.device):
            return tf.raw_ops.AssignVariableOp(resource=self.handle, value=value)


class _VariableGroup:
    """The operations that read and load a group of variables together.

    In parts, since all of a large model at once is more than a message may hold (2 GiB).
    """

    def __init__(self, variables: list[_GraphVariable]) -> None:
        self._variables = variables
        self._inputs = [v1.placeholder(v.dtype, v.shape) for v in variables]
        self._load = [v.assign(i) for v, i in zip(variables, self._inputs, strict=True)]
        self._values = [v.read() for v in variables]

    def read(self, session: Any) -> list[NDArray[Any]]:
        """Return a copy of each value."""
        values: list[NDArray[Any]] = []
        for part in self._parts():
            values += session.run(self._values[part])
        return values

    def load(self, session: Any, values: list[NDArray[Any]]) -> None:
        assert len(values) == len(self._variables)
        for part in self._parts():
            fed = dict(zip(self._inputs[part], values[part], strict=True))
            session.run(self._load[part], fed)

    def _parts(self) -> Iterator[slice]:
        """Yield runs of variables, of one or as many as stay below the limit."""
        first, size = 0, 0
        for i, variable in enumerate(self._variables):
            own = math.prod(variable.shape) * variable.dtype.size
            if i > first and size + own > _PART_BYTES:
                yield slice(first, i)
                first, size = i, 0
            size += own
        if self._variables:
            yield slice(first, len(self._variables))
