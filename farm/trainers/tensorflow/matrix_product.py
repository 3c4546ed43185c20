"""A product of two matrices on everything that TensorFlow computes with on one rank."""

from __future__ import annotations

import tensorflow as tf

from farm.trainers.contracts import MatrixProduct


def matrix_product(side: int) -> MatrixProduct:
    """Return one on each GPU of this rank at the same time, or on all its threads."""
    cpu = tf.constant(0).device
    own = cpu.rpartition("/device:")[0]  # in a gang, devices of the others are listed, too
    gpus = [gpu.name for gpu in tf.config.list_logical_devices("GPU") if gpu.name.startswith(own)]
    devices = gpus or [cpu]
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
