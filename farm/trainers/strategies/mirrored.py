"""Several replicas in one process, each with its copy of the weights: MirroredStrategy.

On GPUs where the rank has one for each replica, else on logical CPU devices that share its cores:
then it shows what mirroring costs and gains nothing.
"""

from __future__ import annotations

from farm.configuration.catalogue import GangShape, StrategyFacts, Traffic
from farm.configuration.spec import JobSpec
from farm.trainers.contracts import Engine, Seat


class Mirrored:
    facts = StrategyFacts(
        name="mirrored",
        summary="replicas on one machine, each with its weights: TensorFlow's MirroredStrategy",
        framework="tensorflow",
        axes=("replicas_per_rank", "compile"),
        has_loader=True,
        max_world_size=1,
        compiles_by_xla=True,
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

        devices = devices_of_replicas(seat.job.replicas_per_rank)
        return ReplicatedEngine(seat, strategy=tf.distribute.MirroredStrategy(devices))
