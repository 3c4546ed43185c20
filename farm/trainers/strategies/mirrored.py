"""Several replicas in one process, each with its copy of the weights: MirroredStrategy.

Replicas use one GPU each, if the rank has enough. Otherwise they use logical CPU devices that share
its cores: that measures the cost of mirroring, and gains nothing.
"""

from __future__ import annotations

from farm.configuration.catalogue import StrategyFacts
from farm.trainers.contracts import Engine, RankContext
from farm.trainers.strategies.tensorflow import TensorFlowStrategy


class Mirrored(TensorFlowStrategy):
    facts = StrategyFacts(
        name="mirrored",
        summary="replicas on one machine, each with its weights: TensorFlow's MirroredStrategy",
        framework="tensorflow",
        axes=("replicas_per_rank", "compile"),
        has_loader=True,
        max_world_size=1,
        compiles_by_xla=True,
    )

    def build(self, rank_context: RankContext) -> Engine:
        import tensorflow as tf

        from farm.trainers.tensorflow.replicas import ReplicatedEngine, devices_of_replicas

        devices = devices_of_replicas(rank_context.job.replicas_per_rank)
        return ReplicatedEngine(rank_context, strategy=tf.distribute.MirroredStrategy(devices))
