"""The devices that TensorFlow uses on one rank: its GPUs, or else all its threads."""

from __future__ import annotations

import tensorflow as tf

from farm.trainers.contracts import MatrixProduct


def matrix_product(side: int) -> MatrixProduct:
    """Return one on each GPU of this rank at the same time, or on all its threads."""
    gpus = [gpu.name for gpu in _own_gpus()]
    devices = gpus or [tf.constant(0).device]
    factors = []
    for device in devices:
        with tf.device(device):
            factors.append(
                [tf.random.stateless_uniform((side, side), seed=(0, n)) for n in range(2)]
            )

    def run(count: int) -> None:
        products = []
        for _ in range(count):
            products = [tf.linalg.matmul(left, right) for left, right in factors]
        if gpus:
            for product in products:
                float(product[0, 0])  # a device computes in order, and a CPU at once

    return MatrixProduct(run=run, flop=2.0 * side**3 * len(devices))


def take_device_memory_bytes() -> int | None:
    """Return the most memory used since the last call, of the GPU with most; None on CPUs."""
    largest = None
    for gpu in _own_gpus():
        name = gpu.name.rpartition("device:")[2]  # such as GPU:0
        peak_bytes = tf.config.experimental.get_memory_info(name)["peak"]
        largest = max(largest or 0, peak_bytes)
        tf.config.experimental.reset_memory_stats(name)
    return largest


def _own_gpus() -> list[tf.config.LogicalDevice]:
    own = tf.constant(0).device.rpartition("/device:")[0]  # in a gang, all others' are listed, too
    return [gpu for gpu in tf.config.list_logical_devices("GPU") if gpu.name.startswith(own)]
