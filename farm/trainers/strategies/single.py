"""One rank on one device, the baseline of every speedup. It uses a GPU if there is one."""

from __future__ import annotations

from farm.configuration.catalogue import StrategyFacts
from farm.trainers.contracts import Engine, RankContext, SingleRankGang
from farm.trainers.strategies.tensorflow import TensorFlowStrategy


class Single(TensorFlowStrategy):
    facts = StrategyFacts(
        name="single",
        summary="one machine: the baseline of every speedup",
        framework="tensorflow",
        axes=("compile",),
        has_loader=True,
        max_world_size=1,
        compiles_by_xla=True,
    )

    def build(self, rank_context: RankContext) -> Engine:
        import tensorflow as tf

        from farm.trainers.tensorflow.engine import TensorFlowEngine

        device = "/gpu:0" if tf.config.list_logical_devices("GPU") else "/cpu:0"
        return TensorFlowEngine(
            rank_context, strategy=tf.distribute.OneDeviceStrategy(device), gang=SingleRankGang()
        )
