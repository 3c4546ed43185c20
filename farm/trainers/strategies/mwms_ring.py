"""Synchronous training with gradients summed around a ring: MultiWorkerMirroredStrategy, RING.

What one rank sends per step, with n ranks and G gradient bytes: 2(n-1) messages, one in each phase
of scatter-reduce and all-gather, together 2(n-1)/n x G bytes, which no all-reduce can undercut
(Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of workstations").
"""

from __future__ import annotations

from farm.core.catalogue import StrategyFacts, Traffic
from farm.trainers.contracts import Engine, Seat


class MwmsRing:
    facts = StrategyFacts(
        name="mwms_ring",
        summary="MultiWorkerMirroredStrategy, ring all-reduce",
        framework="tensorflow",
        min_world_size=2,
    )

    def roles(self, world_size: int, server_count: int) -> tuple[tuple[str, ...], ...]:
        del server_count
        return (("worker",),) * world_size

    def traffic(self, world_size: int, gradient_bytes: float) -> Traffic:
        messages = 2 * (world_size - 1)
        return Traffic(messages=messages, bytes=messages / world_size * gradient_bytes)

    def prepare(self, cpu_count: int) -> str:
        from farm.trainers.tensorflow_setup import import_tensorflow

        return import_tensorflow(cpu_count)

    def build(self, seat: Seat) -> Engine:
        from farm.trainers.tensorflow_engine import TensorFlowEngine
        from farm.trainers.tensorflow_gang import join_ring

        strategy, gang = join_ring(seat)
        return TensorFlowEngine(seat, strategy=strategy, gang=gang)
