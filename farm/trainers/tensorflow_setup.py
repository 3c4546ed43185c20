"""Import TensorFlow and set what can only be set before it runs its first operation."""

from __future__ import annotations

import os


def load_tensorflow() -> str:
    """Import TensorFlow, Keras and the engine; return name and version.

    It may run in a process that trainers are forked from: no operation, no context, no device.
    """
    # Warnings, too: when TensorFlow crashes after an allocation that failed, one is all it says.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    os.environ["KERAS_BACKEND"] = "tensorflow"  # whatever the user's keras.json says
    import tensorflow as tf

    # Imported now, since nothing may be imported during measured steps.
    import farm.trainers.tensorflow_engine  # noqa: F401

    return f"tensorflow {tf.__version__}"


def import_tensorflow(cpu_count: int) -> str:
    """Import TensorFlow and Keras, set threads and devices; return name and version.

    One replica a rank: of several GPUs the first is used, and its memory is taken as needed, so
    that what is measured is what the model needs.
    """
    version = load_tensorflow()
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(cpu_count)
    tf.config.threading.set_inter_op_parallelism_threads(cpu_count)
    gpus = tf.config.list_physical_devices("GPU")[:1]
    tf.config.set_visible_devices(gpus, "GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, enable=True)
    return version
