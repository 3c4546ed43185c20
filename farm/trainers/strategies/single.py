"""One rank, one device: the baseline of every speedup. On a GPU where there is one."""

from __future__ import annotations

from farm.configuration.catalogue import GangShape, StrategyFacts, Traffic
from farm.configuration.spec import JobSpec
from farm.trainers.contracts import Engine, Seat


class Single:
    facts = StrategyFacts(
        name="single",
        summary="one machine: the baseline of every speedup",
        framework="tensorflow",
        axes=("compile",),
        has_loader=True,
        max_world_size=1,
        compiles_by_xla=True,
    )

    def traffic(self, gang: GangShape, gradient_bytes: float) -> Traffic:
        del gang, gradient_bytes
        return Traffic(messages=0, bytes=0.0)

    def prepare(self, job: JobSpec, cpu_count: int) -> str:
        from farm.trainers.tensorflow.setup import import_tensorflow

        return import_tensorflow(cpu_count, placement=job.placement)

    def build(self, seat: Seat) -> Engine:
        import tensorflow as tf

        from farm.trainers.gang import Alone
        from farm.trainers.tensorflow.engine import TensorFlowEngine

        device = "/gpu:0" if tf.config.list_logical_devices("GPU") else "/cpu:0"
        return TensorFlowEngine(
            seat, strategy=tf.distribute.OneDeviceStrategy(device), gang=Alone()
        )
