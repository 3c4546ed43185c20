"""Gradients are summed on rank 0 and sent back, and each rank applies the sum to its own copy.

This is the all-reduce through one CPU of TensorFlow's CNN benchmarks ("pscpu"), without a server:
n-1 ranks send G bytes each to rank 0, which sends the sum, G bytes, to each of them. On average a
rank sends 2(n-1)/n x G, as in a ring. But rank 0 sends (n-1) x G, and the others wait for its link.
"""

from __future__ import annotations

from farm.configuration.catalogue import GANG_AXES, GangShape, StrategyFacts, Traffic
from farm.trainers.contracts import Engine, RankContext
from farm.trainers.strategies.tensorflow import TensorFlowStrategy


class CentralReduce(TensorFlowStrategy):
    facts = StrategyFacts(
        name="central_reduce",
        summary="rank 0 sums the gradients and sends the sum to every rank",
        framework="tensorflow",
        axes=(*GANG_AXES, "compile"),
        has_loader=True,
        min_world_size=2,
    )

    def traffic(self, gang: GangShape, gradient_bytes: float) -> Traffic:
        """Return the mean over ranks: rank 0 sends more, and the others less."""
        ranks = gang.world_size
        return Traffic(messages=2, bytes=2 * (ranks - 1) / ranks * gradient_bytes)

    def build(self, rank_context: RankContext) -> Engine:
        from farm.trainers.tensorflow.sessions.engine import SessionEngine
        from farm.trainers.tensorflow.sessions.scheme import Scheme

        return SessionEngine(rank_context, Scheme.CENTRAL_REDUCE)
