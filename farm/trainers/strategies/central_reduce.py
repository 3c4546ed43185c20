"""Gradients are summed on rank 0 and sent back, and each rank applies the sum to its own copy.

The all-reduce through one CPU of TensorFlow's own CNN benchmarks ("pscpu"), without a server: n-1
ranks send their G bytes to rank 0, which sends the sum, G bytes, to each of them. That is
2(n-1)/n x G sent by a rank on average, as in a ring, but (n-1) x G of it by rank 0, whose link is
what the others wait for.
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

    def build(self, seat: RankContext) -> Engine:
        from farm.trainers.tensorflow.sessions.engine import SessionEngine
        from farm.trainers.tensorflow.sessions.scheme import Scheme

        return SessionEngine(seat, Scheme.CENTRAL_REDUCE)
