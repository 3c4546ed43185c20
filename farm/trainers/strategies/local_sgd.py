"""Every rank trains on its own and all average their weights every k steps: local SGD.

Stich 2019, "Local SGD converges fast and communicates little". A step is SGD on the mean over the
rank's own share; its momentum is not averaged. With k = 1 and equal shares this is synchronous
training: the update is linear in gradient and momentum, so the mean of the ranks' weights equals
the result of a step with the mean of their gradients.
"""

from __future__ import annotations

from farm.configuration.catalogue import GangShape, StrategyFacts, Traffic
from farm.trainers.all_reduce import periodic_all_reduce
from farm.trainers.averaging import PeriodicAveraging
from farm.trainers.contracts import Engine, RankContext
from farm.trainers.strategies.tensorflow import TensorFlowStrategy


class LocalSgd(TensorFlowStrategy):
    facts = StrategyFacts(
        name="local_sgd",
        summary="ranks train alone; all average their weights every steps_between_averages steps",
        framework="tensorflow",
        axes=("ranks_per_agent", "steps_between_averages", "compile"),
        has_loader=True,
        min_world_size=2,
        is_synchronous=False,
        compiles_by_xla=True,
    )

    def traffic(self, gang: GangShape, gradient_bytes: float) -> Traffic:
        return periodic_all_reduce(gang, gradient_bytes)

    def build(self, rank_context: RankContext) -> Engine:
        from farm.trainers.tensorflow.averaging import AveragingEngine

        schedule = PeriodicAveraging.of(rank_context.job)
        return AveragingEngine.join(rank_context, schedule)
