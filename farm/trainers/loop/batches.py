"""Selects the examples of each rank in each step, and reads them.

Each epoch has its own seeded order of the training set. It is cut into global batches, and each
global batch into one share per rank. So `single` with B and a gang of n ranks with B see the same
examples in the same steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

import numpy as np

from farm.configuration.axes import spec_values
from farm.configuration.spec import InputPipeline, JobSpec
from farm.errors import InvalidSpec

if TYPE_CHECKING:
    from farm.trainers.contracts import Examples, IndexArray, InputArray, LabelArray


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBatch:
    """One step's examples. `indices` are this rank's, `examples_count` is the whole gang's."""

    indices: IndexArray
    examples_count: int
    is_partial: bool


def share(
    examples_count: int, *, world_size: int, rank: int, weights: Sequence[float] | None = None
) -> range:
    """Return the positions of a batch that `rank` takes: consecutive, the first ones one more.

    Of B examples over n ranks the first B mod n get one more. With fewer examples than ranks, as
    an epoch's last step may have, the last ranks get none. With `weights`, one for each rank, all
    above 0, the shares are in proportion to them, each within one example of it.
    """
    if weights is not None:
        # Cut where the sum of the weights so far says, so that the parts fit without gaps.
        total = math.fsum(weights)
        first, end = (
            round(examples_count * math.fsum(weights[:count]) / total) for count in (rank, rank + 1)
        )
        return range(first, end)
    quotient, remainder = divmod(examples_count, world_size)
    first = rank * quotient + min(rank, remainder)
    return range(first, first + quotient + (1 if rank < remainder else 0))


def epoch_order(job: JobSpec, *, epoch: int, examples_count: int) -> IndexArray:
    """Return the order in which an epoch goes through the training set.

    With `repeat` and a batch larger than the set, one epoch is one full batch: as many orders one
    after the other as it takes. The order depends on seed and epoch only.
    """
    needed = max(examples_count, job.global_batch_size)
    round_count = -(-needed // examples_count)
    orders = [
        np.random.default_rng((job.seed, epoch, number)).permutation(examples_count)
        for number in range(round_count)
    ]
    return np.concatenate(orders)[:needed].astype(np.int32)


def epoch_steps(
    job: JobSpec,
    *,
    rank: int | None,
    epoch: int,
    examples_count: int,
    weights: Sequence[float] | None = None,
) -> Iterator[StepBatch]:
    """Yield the steps of one epoch; the last one is partial unless the batches fit exactly.

    `rank`: None: each rank gets the whole batch. `weights`: see `share`.

    Raises:
        InvalidSpec: the global batch is larger than the training set, and `repeat` is not set.
    """
    size = job.global_batch_size
    if size > examples_count and not job.repeat:
        raise InvalidSpec(
            "global_batch_size", size, f"at most the {examples_count} training examples, or repeat"
        )
    order = epoch_order(job, epoch=epoch, examples_count=examples_count)
    for first in range(0, len(order), size):
        batch = order[first : first + size]
        mine = (
            range(len(batch))
            if rank is None
            else share(len(batch), world_size=job.world_size, rank=rank, weights=weights)
        )
        yield StepBatch(
            indices=batch[mine.start : mine.stop],
            examples_count=len(batch),
            is_partial=len(batch) < size,
        )


def endless_steps(
    job: JobSpec,
    *,
    rank: int | None,
    examples_count: int,
    weights: Sequence[float] | None = None,
) -> Iterator[StepBatch]:
    """Yield the steps of epoch after epoch, without end; see `epoch_steps`."""
    for epoch in count():
        yield from epoch_steps(
            job, rank=rank, epoch=epoch, examples_count=examples_count, weights=weights
        )


def data_worker_count(job: JobSpec) -> int | None:
    """Return how many workers load a rank's batches, 0: none beside it; None: all are in memory."""
    chosen = spec_values(job)
    if chosen["input_pipeline"] != InputPipeline.LOADER.value:
        return None
    worker_count = chosen["data_workers"]
    assert isinstance(worker_count, int)
    return worker_count


def read_examples(train: Examples, indices: IndexArray) -> tuple[InputArray, LabelArray]:
    """Return inputs and labels of a step, which are decoded again where they come from files.

    A rank without examples takes part in the step with one.

    Raises:
        OSError, ValueError: a file cannot be decoded any more.
    """
    if len(indices) == 0:
        indices = np.zeros(1, np.int32)
    if train.decode is None:
        return train.inputs[indices], train.labels[indices]
    return np.stack([train.decode(place) for place in indices]), train.labels[indices]
