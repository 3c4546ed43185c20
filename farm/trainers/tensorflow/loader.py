"""Loads the batches of a rank by tf.data, ahead of its steps.

Images of a folder are decoded again for each batch, as in training from files; other examples are
copied from memory. Batches come in the order of the steps, whatever the number of threads. Pillow
decodes, as for examples in memory: TensorFlow's own operators give other pixels.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from farm.messages.trainer_lines import FailureKind
from farm.trainers.contracts import Examples, RankContext
from farm.trainers.failures import RankFailed
from farm.trainers.loop.batches import data_worker_count, read_examples

if TYPE_CHECKING:
    from farm.trainers.contracts import IndexArray


def tensorflow_loader(rank_context: RankContext) -> TensorFlowLoader | None:
    """Return what loads a rank's batches; None: they come from memory.

    To be called once the rank has connected, which makes TensorFlow's context anew.
    """
    worker_count = data_worker_count(rank_context.job)
    if worker_count is None:
        return None
    return TensorFlowLoader(rank_context.data.train, worker_count=worker_count)


def example_specs(train: Examples) -> list[tf.TensorSpec]:
    """Return what inputs and labels of any number of examples are."""
    arrays = (train.inputs, train.labels)
    return [tf.TensorSpec([None, *a.shape[1:]], tf.as_dtype(a.dtype)) for a in arrays]


class TensorFlowLoader:
    """Loads batches in `worker_count` threads of this process, or as steps need them with 0.

    A batch is loaded by one thread. At most two batches a thread are ahead.
    """

    def __init__(self, train: Examples, *, worker_count: int) -> None:
        self._train = train
        self._specs = example_specs(train)
        self._worker_count = worker_count
        self._wait_s = 0.0
        self._batches: Iterator[Any] = iter(())
        # By its full name, since "/cpu:0" is every member's of a gang.
        self._cpu = tf.constant(0).device

    def begin(self, shares: Iterator[IndexArray]) -> None:
        """Load these batches from now on, in this order; none of those before."""
        loading: deque[IndexArray] = deque()

        def ordered() -> Iterator[IndexArray]:
            for indices in shares:
                loading.append(indices)
                yield indices

        workers = self._worker_count
        with tf.device(self._cpu):
            batches = tf.data.Dataset.from_generator(
                ordered, output_signature=tf.TensorSpec([None], tf.int32)
            ).map(self._batch, num_parallel_calls=workers or None)
            if workers:
                batches = batches.prefetch(workers)
            self._loading, self._batches = loading, iter(batches.with_options(_options(workers)))

    def next(self, indices: IndexArray) -> tuple[Any, Any]:
        """Return inputs and labels of the next batch, which has these examples.

        Without any it has the first example of all.

        Raises:
            RankFailed: an example cannot be read any more.
        """
        begun_s = time.monotonic()
        inputs, labels, problem = next(self._batches)
        self._wait_s += time.monotonic() - begun_s
        if text := problem.numpy().decode():
            raise RankFailed(FailureKind.TRAINER_RAISED, f"an example cannot be loaded: {text}")
        assert np.array_equal(self._loading.popleft(), indices), "steps are in another order"
        return inputs, labels

    def take_wait_s(self) -> float:
        """Return for how long `next` has waited since the last call."""
        wait_s, self._wait_s = self._wait_s, 0.0
        return wait_s

    def cpu_s(self) -> float:
        """Return 0: the threads are this process's, whose processor time has theirs."""
        return 0.0

    def close(self) -> None:
        """End the threads, once they have loaded what they have begun."""
        self._batches = iter(())

    def _batch(self, indices: Any) -> Any:
        """Return inputs, labels and what went wrong of one share; in a graph of tf.data's."""
        of_inputs, of_labels = self._specs
        inputs, labels, problem = tf.numpy_function(
            self._read, [indices], (of_inputs.dtype, of_labels.dtype, tf.string), stateful=False
        )
        inputs.set_shape(of_inputs.shape)
        labels.set_shape(of_labels.shape)
        return inputs, labels, problem

    def _read(self, indices: IndexArray) -> tuple[Any, Any, str]:
        try:
            return *read_examples(self._train, indices), ""
        except (OSError, ValueError) as error:
            return self._train.inputs[:0], self._train.labels[:0], str(error) or repr(error)


def _options(worker_count: int) -> tf.data.Options:
    """Let tf.data use these threads alone, and load the first batches at once."""
    options = tf.data.Options()
    options.deterministic = True
    options.autotune.enabled = False
    options.threading.private_threadpool_size = max(1, worker_count)
    options.threading.max_intra_op_parallelism = 1
    options.experimental_optimization.apply_default_optimizations = False
    options.experimental_warm_start = worker_count > 0
    return options
