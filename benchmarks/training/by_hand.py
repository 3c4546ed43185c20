"""A training as one would start it by hand: plain TensorFlow, TF_CONFIG, and no farm.

`python -m benchmarks.training.by_hand RANK CORE PORT...` runs one rank on one core; with one port
there is no gang. The model, the optimizer, the examples and their batches, the kind of step, the
threads and the way of timing a step are those of the farm's trainers, written anew without them;
only the examples are read by the farm's own reader. It stops itself (SIGSTOP) after the
warm-up, to go on when it is continued; in the end it prints one JSON object: `step_times_s`.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import time
from typing import Any

MODEL, DATASET = "small_cnn", "synthetic_mnist"
# Of one rank: what Keras takes unless told. It divides the data set: no step is a partial one.
BATCH_SIZE = 32
WARMUP_STEPS, TIMED_STEPS = 50, 800  # within one epoch of two ranks
_STANDSTILL_LIMIT_S = 300  # TensorFlow's own limit of 10 s is for ranks that nobody stops


def main() -> None:
    """Train and print."""
    rank, core, *ports = map(int, sys.argv[1:])
    os.sched_setaffinity(0, {core})
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    if len(ports) > 1:
        workers = [f"127.0.0.1:{port}" for port in ports]
        task = {"type": "worker", "index": rank}
        os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": task})
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    times_s = train(rank, world_size=len(ports))
    # Nobody reads before the end, and a pipe holds 64 kB.
    print(json.dumps({"step_times_s": [round(t, 7) for t in times_s]}), flush=True)
    # The interpreter's own way out destroys the strategy while its peers still use it.
    if len(ports) > 1:
        from tensorflow.python.eager import context

        context.context().wait_at_barrier("leave", 20_000)
        time.sleep(0.3 if rank else 1.0)
    os._exit(0)


def train(rank: int, *, world_size: int) -> list[float]:
    """Return the seconds of each timed step."""
    import numpy as np

    step = make_step(world_size)
    order = np.random.default_rng((0, 0, 0)).permutation(60_000).astype(np.int32)
    size = BATCH_SIZE * world_size
    batches = [order[first : first + size] for first in range(0, len(order), size)]
    shares = [batch[rank * BATCH_SIZE : (rank + 1) * BATCH_SIZE] for batch in batches]
    scale = np.float32(1 / size)
    for indices in shares[:WARMUP_STEPS]:
        float(step(indices, scale))
    gc.collect()
    gc.freeze()
    os.kill(os.getpid(), signal.SIGSTOP)
    times_s = []
    for indices in shares[WARMUP_STEPS : WARMUP_STEPS + TIMED_STEPS]:
        begun_s = time.monotonic()
        float(step(indices, scale))
        times_s.append(time.monotonic() - begun_s)
    return times_s


def make_step(world_size: int) -> Any:
    """Build the strategy, the model and the compiled step: (indices, scale) to a sum of losses."""
    import keras
    import tensorflow as tf
    from keras import layers

    from farm import registry

    if world_size > 1:
        _configure_coordination(world_size)
        ring = tf.distribute.experimental.CommunicationImplementation.RING
        options = tf.distribute.experimental.CommunicationOptions(implementation=ring)
        strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    else:
        strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    train_set = registry.dataset(DATASET).load(()).train
    keras.utils.set_random_seed(0)
    with strategy.scope():
        model = keras.Sequential(
            [
                layers.Input((28, 28, 1)),
                layers.Conv2D(32, 3, activation="relu"),
                layers.MaxPooling2D(),
                layers.Conv2D(64, 3, activation="relu"),
                layers.MaxPooling2D(),
                layers.Conv2D(64, 3, activation="relu"),
                layers.Flatten(),
                layers.Dense(64, activation="relu"),
                layers.Dense(10),
            ]
        )
        optimizer = keras.optimizers.SGD(0.02, momentum=0.9)
        optimizer.build(model.trainable_variables)
    images, labels = tf.constant(train_set.inputs), tf.constant(train_set.labels)

    def on_replica(indices: Any, scale: Any) -> Any:
        batch = tf.cast(tf.gather(images, indices), tf.float32) / 255.0
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels=tf.gather(labels, indices), logits=model(batch, training=True)
            )
            loss_sum = tf.reduce_sum(losses)
            scaled = loss_sum * scale
        variables = model.trainable_variables
        optimizer.apply(tape.gradient(scaled, variables), variables)
        return loss_sum

    signature = [tf.TensorSpec([None], tf.int32), tf.TensorSpec([], tf.float32)]

    @tf.function(input_signature=signature, autograph=False)  # type: ignore[untyped-decorator]
    def step(indices: Any, scale: Any) -> Any:
        return strategy.run(on_replica, args=(indices, scale))

    return step


def _configure_coordination(world_size: int) -> None:
    """Do what the strategy would, but for how long a rank may stand still."""
    from tensorflow.compiler.xla.tsl.protobuf import coordination_config_pb2
    from tensorflow.python.eager import context

    context.context().configure_coordination_service(
        service_type="standalone",
        service_leader="/job:worker/replica:0/task:0",
        heartbeat_timeout_in_ms=_STANDSTILL_LIMIT_S * 1000,
        coordinated_jobs=[
            coordination_config_pb2.CoordinatedJob(name="worker", num_tasks=world_size)
        ],
    )


if __name__ == "__main__":
    main()
