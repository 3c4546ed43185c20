"""One rank of several TensorFlow replicas: GPUs of its machine, or logical CPU devices."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from farm.trainers.contracts import Examples, RankContext, SingleRankGang
from farm.trainers.replica_shares import replica_devices, share_among_replicas
from farm.trainers.tensorflow.engine import Passes, Step, TensorFlowEngine
from farm.trainers.tensorflow.loader import example_specs
from farm.trainers.tensorflow.profile import collective_times

if TYPE_CHECKING:
    from farm.trainers.contracts import IndexArray


def devices_of_replicas(replica_count: int) -> tuple[str, ...]:
    """Return where the replicas go, by what `import_tensorflow` has made visible."""
    gpu_count = len(tf.config.list_logical_devices("GPU"))
    return replica_devices(gpu_count=gpu_count, replica_count=replica_count)


class ReplicatedEngine(TensorFlowEngine):
    """Every replica takes its part of the rank's share; the strategy sums their gradients."""

    def __init__(self, rank_context: RankContext, *, strategy: Any) -> None:
        self._devices = tuple(strategy.extended.worker_devices)
        self._sums_by_collectives = isinstance(strategy, tf.distribute.MirroredStrategy)
        super().__init__(rank_context, strategy=strategy, gang=SingleRankGang())

    @property
    def settings(self) -> dict[str, object]:
        """Also the replicas' devices, and how many GPUs there are whether or not they suffice."""
        return super().settings | {
            "replica_devices": [
                ":".join(device.lower().rpartition("device:")[2].split(":"))
                for device in self._devices
            ],
            "gpus_found_count": len(tf.config.list_physical_devices("GPU")),
        }

    def trace(self, run_steps: Callable[[], None]) -> tuple[float, ...] | None:
        """Return the mean over the replicas, whose parts of a collective run side by side.

        None where they use none: central storage reads weights and adds up gradients in the CPU's
        memory, by the same operations that compute, and nobody can tell one from the other.
        """
        count = len(self._devices)
        if count == 1 or not self._sums_by_collectives:
            run_steps()
            return () if count == 1 else None
        times_s = collective_times(run_steps)
        if not times_s:
            return None
        return tuple(
            statistics.fmean(times_s[first : first + count])
            for first in range(0, len(times_s), count)
        )

    def _build_model(self, rank_context: RankContext) -> Any:
        """Build it such that its moving statistics, if it has any, can be updated by replicas.

        Mirrored, each replica has its own, and the first's are evaluated. Stored once, they are
        set to the mean of what the replicas would set them to.
        """
        if self._sums_by_collectives:
            return super()._build_model(rank_context)
        with tf.variable_creator_scope(_with_aggregation):
            return super()._build_model(rank_context)

    def _run(self, indices: IndexArray, scale: float, *, examples_count: int) -> float:
        inputs, labels, places = self._examples(indices)
        shares = share_among_replicas(places, len(self._devices))
        scales = shares.weights * np.float32(scale)
        step = self._step_of(examples_count)
        return float(step(inputs, labels, shares.indices, shares.bounds, scales))

    def _placed(self, examples: Any) -> list[Any]:
        """Return the examples for each replica: a copy on each GPU, one for all on the CPU."""
        if not any("GPU" in device for device in self._devices):
            return [super()._placed(examples)] * len(self._devices)
        copies = []
        for device in self._devices:
            with tf.device(device):
                copies.append(tf.identity(examples))
        return copies

    def _step_maker(self, train: Examples, *, strategy: Any) -> Callable[[Passes], Step]:
        """Return what compiles a step.

        Such a step maps each replica's inputs and labels, and indices, bounds and scales of
        `ReplicaShares`, to the sum of losses.
        """
        count = len(self._devices)

        def made(passes: Passes) -> Step:
            @tf.function(  # type: ignore[untyped-decorator]
                input_signature=[
                    *([spec] * count for spec in example_specs(train)),
                    tf.TensorSpec([None], tf.int32),
                    tf.TensorSpec([count + 1], tf.int32),
                    tf.TensorSpec([count], tf.float32),
                ],
                autograph=False,
            )
            def step(inputs: Any, labels: Any, indices: Any, bounds: Any, scales: Any) -> Any:
                def on_replica(inputs: Any, labels: Any) -> Any:
                    replica = tf.distribute.get_replica_context().replica_id_in_sync_group
                    mine = indices[bounds[replica] : bounds[replica + 1]]
                    scale = scales[replica]
                    loss_sum, gradients = passes(
                        tf.gather(inputs, mine), tf.gather(labels, mine), scale
                    )
                    self._update(gradients)
                    return tf.where(scale > 0.0, loss_sum, 0.0)

                losses = strategy.run(
                    on_replica,
                    args=(_per_replica(strategy, inputs), _per_replica(strategy, labels)),
                )
                # Added up here and not by the strategy, which would do it with one more
                # collective.
                return tf.add_n(strategy.experimental_local_results(losses))

            return step

        return made


def _with_aggregation(create: Callable[..., Any], **details: Any) -> Any:
    """Let a variable that is not trained be assigned by several replicas; Keras leaves it open."""
    undecided = details.get("aggregation") in (None, tf.VariableAggregation.NONE)
    if undecided and not details.get("trainable", True):
        is_floating = tf.as_dtype(details["dtype"]).is_floating
        kind = tf.VariableAggregation
        details["aggregation"] = kind.MEAN if is_floating else kind.ONLY_FIRST_REPLICA
    return create(**details)


def _per_replica(strategy: Any, values: list[Any]) -> Any:
    return strategy.experimental_distribute_values_from_function(
        lambda context: values[context.replica_id_in_sync_group]
    )
