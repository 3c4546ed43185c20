"""Several replicas in one process share one copy of the weights: CentralStorageStrategy.

Each replica reads the weights from the CPU, and their gradients are summed and applied there.
"""

from __future__ import annotations

from farm.configuration.catalogue import StrategyFacts
from farm.trainers.contracts import Engine, RankContext
from farm.trainers.strategies.tensorflow import TensorFlowStrategy


class CentralStorage(TensorFlowStrategy):
    facts = StrategyFacts(
        name="central_storage",
        summary="replicas on one machine, weights on its CPU: TensorFlow's CentralStorageStrategy",
        framework="tensorflow",
        axes=("replicas_per_rank", "compile"),
        has_loader=True,
        max_world_size=1,
    )

    def build(self, rank_context: RankContext) -> Engine:
        import tensorflow as tf

        from farm.trainers.tensorflow.replicas import ReplicatedEngine, devices_of_replicas

        strategy = tf.distribute.experimental.CentralStorageStrategy(
            compute_devices=devices_of_replicas(rank_context.job.replicas_per_rank),
            parameter_device="/cpu:0",
        )
        return ReplicatedEngine(rank_context, strategy=strategy)
