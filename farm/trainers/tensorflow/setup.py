"""Import TensorFlow and set what can only be set before it runs its first operation."""

from __future__ import annotations

import os

from farm.configuration.spec import OperatorPlacement
from farm.trainers.hyperparameters import fixed_settings


def load_tensorflow() -> str:
    """Import TensorFlow, Keras and the engine; return name and version.

    It may run in a process that trainers are forked from: no operation, no context, no device.
    """
    # Warnings, too: when TensorFlow crashes after an allocation that failed, one is all it says.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    os.environ["KERAS_BACKEND"] = "tensorflow"  # whatever the user's keras.json says
    import tensorflow as tf

    # Imported now, since nothing may be imported during measured steps.
    import farm.trainers.tensorflow.engine  # noqa: F401

    return f"tensorflow {tf.__version__}"


def import_tensorflow(
    cpu_count: int,
    *,
    replicas_per_rank: int = 1,
    placement: OperatorPlacement = OperatorPlacement.SOFT,
) -> str:
    """Import TensorFlow and Keras, set threads and devices; return name and version.

    A GPU for each replica where there are enough, and its memory is taken as needed, so that what
    is measured is what the model needs; else no GPU, and as many logical CPU devices, which share
    the rank's cores. With hard placement there is no GPU either, and an operator that asks for one
    is an error and not moved.
    """
    version = load_tensorflow()
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(cpu_count)
    tf.config.threading.set_inter_op_parallelism_threads(cpu_count)
    is_hard = placement is OperatorPlacement.HARD
    tf.config.set_soft_device_placement(not is_hard)
    found = [] if is_hard else tf.config.list_physical_devices("GPU")
    gpus = found[:replicas_per_rank] if len(found) >= replicas_per_rank else []
    tf.config.set_visible_devices(gpus, "GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, enable=True)
    if not gpus and replicas_per_rank > 1:
        [cpu] = tf.config.list_physical_devices("CPU")
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * replicas_per_rank
        )
    return version


def tensorflow_settings(placement: OperatorPlacement) -> dict[str, object]:
    """Return `fixed_settings` as TensorFlow has them."""
    import tensorflow as tf

    return fixed_settings(
        intra_op_threads=tf.config.threading.get_intra_op_parallelism_threads(),
        inter_op_threads=tf.config.threading.get_inter_op_parallelism_threads(),
        placement=placement,
        is_on_gpu=bool(tf.config.get_visible_devices("GPU")),
    )
