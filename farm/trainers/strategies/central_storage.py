"""Several replicas in one process, the weights once, on the CPU: CentralStorageStrategy.

Each replica reads the weights from the CPU, and their gradients are summed and applied there.
"""

from __future__ import annotations

from farm.configuration.catalogue import GangShape, StrategyFacts, Traffic
from farm.configuration.spec import JobSpec
from farm.trainers.contracts import Engine, Seat


class CentralStorage:
    facts = StrategyFacts(
        name="central_storage",
        summary="replicas on one machine, weights on its CPU: TensorFlow's CentralStorageStrategy",
        framework="tensorflow",
        axes=("replicas_per_rank", "compile"),
        has_loader=True,
        max_world_size=1,
    )

    def traffic(self, gang: GangShape, gradient_bytes: float) -> Traffic:
        del gang, gradient_bytes
        return Traffic(messages=0, bytes=0.0)

    def prepare(self, job: JobSpec, cpu_count: int) -> str:
        from farm.trainers.tensorflow.setup import import_tensorflow

        return import_tensorflow(
            cpu_count, replicas_per_rank=job.replicas_per_rank, placement=job.placement
        )

    def build(self, seat: Seat) -> Engine:
        import tensorflow as tf

        from farm.trainers.tensorflow.replicas import ReplicatedEngine, devices_of_replicas

        strategy = tf.distribute.experimental.CentralStorageStrategy(
            compute_devices=devices_of_replicas(seat.job.replicas_per_rank),
            parameter_device="/cpu:0",
        )
        return ReplicatedEngine(seat, strategy=strategy)
