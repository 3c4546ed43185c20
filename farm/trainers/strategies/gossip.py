"""Every rank trains on its own and averages its weights with one neighbour on a ring per step.

Decentralised training by gossip (Lian et al. 2017, "Can decentralized algorithms outperform
centralized algorithms?"), with alternating pairs. A step is SGD on the mean over the rank's own
share; its momentum is not averaged. With two ranks it equals `local_sgd` with an average after
every step.
"""

from __future__ import annotations

from farm.configuration.catalogue import GangShape, StrategyFacts, Traffic
from farm.trainers.all_reduce import ring_all_reduce
from farm.trainers.averaging import RotatingNeighbour
from farm.trainers.contracts import Engine, RankContext
from farm.trainers.strategies.tensorflow import TensorFlowStrategy


class Gossip(TensorFlowStrategy):
    facts = StrategyFacts(
        name="gossip",
        summary="ranks train alone; each averages its weights with one neighbour after every step",
        framework="tensorflow",
        axes=("ranks_per_agent", "compile"),
        has_loader=True,
        min_world_size=2,
        is_synchronous=False,
        compiles_by_xla=True,
    )

    def traffic(self, gang: GangShape, gradient_bytes: float) -> Traffic:
        """Return the mean over ranks: an all-reduce of two, which of an odd number one sits out."""
        pair = ring_all_reduce(2, gradient_bytes)
        paired_count = gang.world_size // 2 * 2
        return Traffic(messages=pair.messages, bytes=pair.bytes * paired_count / gang.world_size)

    def build(self, rank_context: RankContext) -> Engine:
        from farm.trainers.tensorflow.averaging import AveragingEngine

        schedule = RotatingNeighbour(world_size=rank_context.job.world_size, rank=rank_context.rank)
        return AveragingEngine.join(rank_context, schedule)
