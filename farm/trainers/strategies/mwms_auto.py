"""Synchronous training with gradients summed as TensorFlow chooses: MultiWorkerMirroredStrategy.

AUTO uses NCCL between GPUs, and between CPUs the ring of `mwms_ring`, as the measured bytes per
step confirm. NCCL, too, sends at least as many bytes as a ring.
"""

from __future__ import annotations

from farm.configuration.catalogue import GANG_AXES, GangShape, StrategyFacts, Traffic
from farm.trainers.all_reduce import ring_all_reduce
from farm.trainers.contracts import Engine, RankContext
from farm.trainers.strategies.tensorflow import TensorFlowStrategy


class MwmsAuto(TensorFlowStrategy):
    facts = StrategyFacts(
        name="mwms_auto",
        summary="MultiWorkerMirroredStrategy; it chooses the collective: NCCL on GPUs",
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

        strategy, gang = join_collective(rank_context, "AUTO")
        return TensorFlowEngine(rank_context, strategy=strategy, gang=gang)
