"""Synchronous training with gradients summed around a ring: MultiWorkerMirroredStrategy, RING."""

from __future__ import annotations

from farm.configuration.catalogue import GANG_AXES, GangShape, StrategyFacts, Traffic
from farm.trainers.all_reduce import ring_all_reduce
from farm.trainers.contracts import Engine, RankContext
from farm.trainers.strategies.tensorflow import TensorFlowStrategy


class MwmsRing(TensorFlowStrategy):
    facts = StrategyFacts(
        name="mwms_ring",
        summary="synchronous, ring all-reduce: TensorFlow's MultiWorkerMirroredStrategy",
        framework="tensorflow",
        axes=(*GANG_AXES, "compile"),
        has_loader=True,
        min_world_size=2,
        compiles_by_xla=True,
    )

    def traffic(self, gang: GangShape, gradient_bytes: float) -> Traffic:
        return ring_all_reduce(gang.world_size, gradient_bytes)

    def build(self, rank_context: RankContext) -> Engine:
        from farm.trainers.tensorflow.engine import TensorFlowEngine
        from farm.trainers.tensorflow.gang import join_collective

        strategy, gang = join_collective(rank_context, "RING")
        return TensorFlowEngine(rank_context, strategy=strategy, gang=gang)
