"""One rank, one device: the baseline of every speedup. On a GPU where there is one."""

from __future__ import annotations

from farm.core.catalogue import StrategyFacts, Traffic
from farm.trainers.contracts import Engine, Seat


class Single:
    facts = StrategyFacts(
        name="single", summary="one machine, no network", framework="tensorflow", max_world_size=1
    )

    def roles(self, world_size: int, server_count: int) -> tuple[tuple[str, ...], ...]:
        del server_count
        return (("worker",),) * world_size

    def traffic(self, world_size: int, gradient_bytes: float) -> Traffic:
        del world_size, gradient_bytes
        return Traffic(messages=0, bytes=0.0)

    def prepare(self, cpu_count: int) -> str:
        from farm.trainers.tensorflow_setup import import_tensorflow

        return import_tensorflow(cpu_count)

    def build(self, seat: Seat) -> Engine:
        import tensorflow as tf

        from farm.trainers.tensorflow_engine import TensorFlowEngine
        from farm.trainers.tensorflow_gang import Alone

        device = "/gpu:0" if tf.config.list_logical_devices("GPU") else "/cpu:0"
        return TensorFlowEngine(
            seat, strategy=tf.distribute.OneDeviceStrategy(device), gang=Alone()
        )
