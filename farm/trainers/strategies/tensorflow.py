"""The common part of the TensorFlow strategies."""

from __future__ import annotations

from collections.abc import Callable

from farm.configuration.catalogue import GangShape, StrategyFacts, Traffic
from farm.configuration.spec import JobSpec
from farm.trainers.contracts import Engine, RankContext


class TensorFlowStrategy:
    """Ranks of TensorFlow. A subclass adds its `facts` and `build`; of several ranks, `traffic`."""

    facts: StrategyFacts

    def traffic(self, gang: GangShape, gradient_bytes: float) -> Traffic:
        """Return nothing: one rank alone sends nothing."""
        del gang, gradient_bytes
        return Traffic(messages=0, bytes=0.0)

    def prepare(self, job: JobSpec, cpu_count: int) -> str:
        from farm.trainers.tensorflow.setup import import_tensorflow

        return import_tensorflow(
            cpu_count, replicas_per_rank=job.replicas_per_rank, placement=job.placement
        )


class ServerStrategy(TensorFlowStrategy):
    """Ranks that train beside processes which only serve. A subclass adds its `facts`.

    The scheme of its exchange is the one of its name.
    """

    def traffic(self, gang: GangShape, gradient_bytes: float) -> Traffic:
        """Return one push, of all gradients; what is pulled the servers send."""
        del gang
        return Traffic(messages=2, bytes=gradient_bytes)

    def build(self, rank_context: RankContext) -> Engine:
        from farm.trainers.tensorflow.sessions.engine import SessionEngine
        from farm.trainers.tensorflow.sessions.scheme import Scheme

        return SessionEngine(rank_context, Scheme(self.facts.name))

    def serve(self, rank_context: RankContext, beat: Callable[[], None]) -> None:
        from farm.trainers.tensorflow.sessions.gang import serve_until_left

        serve_until_left(rank_context, beat)
