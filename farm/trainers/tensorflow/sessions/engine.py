"""A rank that sends gradients to parameter servers or to rank 0, in all four schemes.

Synchronous schemes: a rank's gradient is the sum over its own examples divided by the global batch
size actually used. So the sum on the servers or on rank 0 is the mean over the global batch,
however unevenly it is split. Asynchronous scheme: a gradient is the mean over the rank's own share,
and is applied at once; a rank without examples makes no update.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from farm.configuration.spec import TrainingPass
from farm.messages.trainer_lines import Exchange
from farm.trainers.contracts import Evaluation, MatrixProduct, RankContext, WeightSums
from farm.trainers.models.checksum import checksum_of
from farm.trainers.tensorflow.devices import matrix_product, take_device_memory_bytes
from farm.trainers.tensorflow.loader import tensorflow_loader
from farm.trainers.tensorflow.loss import Evaluator
from farm.trainers.tensorflow.sessions.gang import SessionGang
from farm.trainers.tensorflow.sessions.scheme import RankScheme, Scheme, spread
from farm.trainers.tensorflow.sessions.training_graph import StepOutputs, TrainingGraph
from farm.trainers.tensorflow.setup import tensorflow_settings

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from farm.trainers.contracts import IndexArray, InputArray, LabelArray


class SessionEngine:
    """Connected, with the initial weights in place, once it is built."""

    def __init__(self, rank_context: RankContext, scheme: Scheme) -> None:
        self._rank_context = rank_context
        self._scheme = scheme
        self._is_forward = rank_context.job.training_pass is TrainingPass.FORWARD
        self._gang = SessionGang(rank_context, scheme)
        keras.utils.set_random_seed(rank_context.job.seed)
        self._model = rank_context.model.build(
            rank_context.dataset.example_shape, rank_context.dataset.class_count
        )
        self._evaluator = Evaluator(self._model, rank_context.data.test)
        self._count = ExchangeCount(is_synchronous=scheme.is_synchronous)
        self._communication_s: list[float] = []
        self.loader = tensorflow_loader(rank_context)
        self._join()

    def _join(self) -> None:
        """Load the initial values: the chief what is shared, and each rank its own."""
        weights = [np.asarray(v) for v in self._model.trainable_variables]
        others = [np.asarray(v) for v in self._model.non_trainable_variables]
        self._plan = RankScheme(
            scheme=self._scheme,
            rank=self._rank_context.rank,
            world_size=self._rank_context.job.world_size,
            weight_host_devices=self._gang.weight_host_devices,
            own_device=self._gang.own_device,
            homes=spread([w.nbytes for w in weights], len(self._gang.weight_host_devices)),
            is_forward=self._is_forward,
        )
        graph = TrainingGraph(
            self._plan,
            self._model,
            train=self._rank_context.data.train,
            weights=weights,
            others=others,
        )
        self._graph = graph
        self._gang.open(graph.graph, graph.barrier)
        outputs = graph.outputs
        self._names = [n for n in StepOutputs.__slots__ if getattr(outputs, n) is not None]
        fetches = [getattr(outputs, name) for name in self._names]
        fed = [graph.inputs, graph.labels, graph.scale]
        self._run = self._gang.run(
            lambda session: session.make_callable([fetches, graph.done], feed_list=fed)
        )
        self.restore(graph.initial(weights, others))

    @property
    def parameter_count(self) -> int:
        return sum(int(np.prod(v.shape)) for v in self._model.trainable_variables)

    @property
    def gradient_bytes(self) -> int:
        return sum(self._weight_bytes)

    @property
    def settings(self) -> dict[str, object]:
        """What was fixed, and how many bytes of the weights each server keeps."""
        kept_bytes = [0] * len(self._plan.weight_host_devices)
        for size, home in zip(self._weight_bytes, self._plan.homes, strict=True):
            kept_bytes[home] += size
        return {
            **tensorflow_settings(self._rank_context.job.placement),
            **({"bytes_by_server": kept_bytes} if self._scheme.has_servers else {}),
        }

    def matrix_product(self, side: int) -> MatrixProduct:
        return matrix_product(side)

    def take_device_memory_bytes(self) -> int | None:
        return take_device_memory_bytes()

    def step(self, indices: IndexArray, *, examples_count: int) -> float:
        """Train on own examples, sending the gradients to the parameter servers."""
        # Partial steps are not among the timed ones, whose exchange is counted.
        is_counted = examples_count == self._rank_context.job.global_batch_size
        inputs, labels = self._examples(indices)
        if len(indices) == 0 and not self._scheme.is_synchronous:
            if is_counted:
                self._count.add(push_s=0.0, pull_s=0.0, is_update=False)
            return 0.0
        if len(indices) == 0:
            # Convolutions raise on an empty batch, and the peers wait for this rank's part of the
            # sum: one example with weight zero.
            return self._step(inputs, labels, scale=0.0, is_counted=is_counted) * 0.0
        divisor = examples_count if self._scheme.is_synchronous else len(indices)
        return self._step(inputs, labels, scale=1.0 / divisor, is_counted=is_counted)

    def _examples(self, indices: IndexArray) -> tuple[InputArray, LabelArray]:
        """Return inputs and labels of a step; those of one example where it has none."""
        if self.loader is not None:
            inputs, labels = self.loader.next(indices)
            return inputs.numpy(), labels.numpy()
        train = self._rank_context.data.train
        if len(indices) == 0:
            indices = np.zeros(1, np.int32)
        return train.inputs[indices], train.labels[indices]

    def _step(
        self, inputs: InputArray, labels: LabelArray, *, scale: float, is_counted: bool
    ) -> float:
        values, _ = self._gang.run(lambda _: self._run(inputs, labels, np.float32(scale)))
        fetched = dict(zip(self._names, values, strict=True))
        exchanged_s = fetched.get("exchanged", fetched["computing_ended"])
        pushed_s = fetched.get("pushed", exchanged_s)
        # A clock that was set meanwhile may give anything.
        push_s = max(0.0, float(pushed_s - fetched["computing_ended"]))
        pulled_s = fetched["computing_begun"] - fetched["begun"] + exchanged_s - pushed_s
        pull_s = max(0.0, float(pulled_s))
        staleness = None
        if "updates_after" in fetched:
            staleness = int(fetched["updates_after"] - fetched["updates_before"])
        if is_counted:
            self._count.add(
                push_s=push_s, pull_s=pull_s, is_update=not self._is_forward, staleness=staleness
            )
        self._communication_s.append(push_s + pull_s)
        return float(fetched["loss_sum"])

    def take_exchange(self) -> Exchange | None:
        """Return what the full steps since the last call came to.

        `push_s` is from the last gradient computed to all of them with the weight hosts; `pull_s`
        is from there until all has come that the rank waits for, and the same for the weights that
        a step begins with. What feeds, begins and ends a run is in neither.
        """
        return self._count.take()

    def trace(self, run_steps: Callable[[], None]) -> tuple[float, ...] | None:
        """Return what each step exchanged. No profiler: every step is stamped anyway."""
        self._communication_s.clear()
        run_steps()
        return tuple(self._communication_s)

    def prepare_evaluation(self) -> None:
        """Wait for the updates of ranks that are behind, where they do not wait for each other."""
        if not self._scheme.is_synchronous:
            self._gang.wait(timeout_s=self._rank_context.job.time_limit_s)

    def evaluate(self, on_batch: Callable[[], None]) -> Evaluation:
        """Evaluate the shared weights with this rank's own moving statistics."""
        weights, others = self._gang.run(
            lambda session: (self._graph.weights.read(session), self._graph.others.read(session))
        )
        for variables, values in (
            (self._model.trainable_variables, weights),
            (self._model.non_trainable_variables, others),
        ):
            for variable, value in zip(variables, values, strict=True):
                variable.assign(value)
        return self._evaluator.run(on_batch)

    def save(self) -> object:
        shared, local = self._graph.shared, self._graph.local
        is_chief = self._plan.is_chief
        state = self._gang.run(
            lambda session: (shared.read(session) if is_chief else [], local.read(session))
        )
        # Nobody trains on before the chief has read.
        self._gang.wait(timeout_s=self._rank_context.job.time_limit_s)
        return state

    def restore(self, state: object) -> None:
        """Put back what `save` returned, at the same time on every rank."""
        assert isinstance(state, tuple)
        shared, local = state
        self._gang.wait(timeout_s=self._rank_context.job.time_limit_s)

        def load(session: Any) -> None:
            if self._plan.is_chief:
                self._graph.shared.load(session, shared)
            self._graph.local.load(session, local)

        self._gang.run(load)
        self._gang.wait(timeout_s=self._rank_context.job.time_limit_s)

    def weight_sums(self) -> WeightSums:
        values: list[NDArray[Any]] = self._gang.run(self._graph.weights.read)
        return WeightSums.of(value.astype(np.float64) for value in values)

    def weights_checksum(self) -> float:
        # Of the others the chief's are everybody's.
        return checksum_of(self._model.non_trainable_variables)

    def wait_for_peers(self, name: str, *, timeout_s: float) -> None:
        del name  # The barriers of one gang are distinguished by their order.
        self._gang.wait(timeout_s=timeout_s)

    def leave(self) -> None:
        self._gang.leave()
        if self.loader is not None:
            self.loader.close()

    @property
    def _weight_bytes(self) -> list[int]:
        return [
            int(np.prod(v.shape)) * tf.as_dtype(v.dtype).size
            for v in self._model.trainable_variables
        ]


# Counts from here on are one: a rank that was held up for seconds would make a list of thousands.
LARGEST_STALENESS = 1000


class ExchangeCount:
    """Adds up what steps have exchanged. `is_synchronous`: updates have no staleness."""

    def __init__(self, *, is_synchronous: bool) -> None:
        self._is_synchronous = is_synchronous
        self._clear()

    def _clear(self) -> None:
        self._step_count = self._update_count = 0
        self._push_s = self._pull_s = 0.0
        self._staleness: Counter[int] = Counter()

    def add(
        self, *, push_s: float, pull_s: float, is_update: bool, staleness: int | None = None
    ) -> None:
        """Count a step; with `is_update`, it had a part in one update, `staleness` updates late."""
        self._step_count += 1
        self._push_s += push_s
        self._pull_s += pull_s
        self._update_count += is_update
        if staleness is not None:
            self._staleness[min(staleness, LARGEST_STALENESS)] += 1

    def take(self) -> Exchange:
        """Return what was counted, and reset the counts."""
        steps = self._step_count
        largest = max(self._staleness, default=-1)
        counts = tuple(self._staleness[k] for k in range(largest + 1))
        found = Exchange(
            update_count=self._update_count,
            push_s=self._push_s / steps if steps else None,
            pull_s=self._pull_s / steps if steps else None,
            staleness_counts=None if self._is_synchronous else counts,
        )
        self._clear()
        return found
