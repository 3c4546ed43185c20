"""Loads the batches of a rank by PyTorch's DataLoader, ahead of its steps.

Images of a folder are decoded again for each batch, as in training from files; other examples are
copied from memory. Batches come in the order of the steps, whatever the number of processes.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import torch
from torch.utils.data import DataLoader, Dataset

from farm.messages.trainer_lines import FailureKind
from farm.text.display import byte_count
from farm.trainers.contracts import Examples, RankContext
from farm.trainers.failures import RankFailed
from farm.trainers.loop.batches import data_worker_count, read_examples, share
from farm.trainers.processes.process import end_with_parent

if TYPE_CHECKING:
    from farm.trainers.contracts import IndexArray

_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - PyTorch's choice
_BATCHES_PER_WORKER = 2  # that it loads ahead; PyTorch's default
_Batch = tuple[torch.Tensor, torch.Tensor]


def batch_loader(rank_context: RankContext) -> BatchLoader | None:
    """Return what loads a rank's batches; None: they come from memory.

    To be called before the rank connects, so that no other process has its connections.
    """
    job = rank_context.job
    worker_count = data_worker_count(job)
    if worker_count is None:
        return None
    mine = share(
        job.global_batch_size,
        world_size=job.world_size,
        rank=rank_context.rank,
        weights=rank_context.go.batch_weights,
    )
    return BatchLoader(
        rank_context.data.train,
        worker_count=worker_count,
        batch_size=len(mine),
        rank_count=job.ranks_per_agent,
    )


class BatchLoader:
    """Loads batches in `worker_count` processes, or in this one with 0.

    The processes are forked at once, and end with this one. A batch is loaded by one of them, which
    is two batches ahead at most.
    """

    def __init__(
        self, train: Examples, *, worker_count: int, batch_size: int, rank_count: int = 1
    ) -> None:
        """Start the processes. `batch_size`: the most examples of a batch.

        `rank_count`: ranks of the agent, whose loaders share the memory.

        Raises:
            RankFailed: they cannot be started, or shared memory is too small for their batches.
        """
        batch_count = (worker_count * _BATCHES_PER_WORKER + 1) * rank_count  # one more is in use
        if worker_count:
            _check_shared_memory(train, batch_size=batch_size, batch_count=batch_count)
        self._wait_s = 0.0
        self._order = _Order()
        self._loader = DataLoader(
            _Batches(train),
            batch_size=None,
            sampler=self._order,
            num_workers=worker_count,
            persistent_workers=worker_count > 0,
            prefetch_factor=_BATCHES_PER_WORKER if worker_count else None,
            multiprocessing_context="fork" if worker_count else None,
            worker_init_fn=_begin_worker,
            # It draws a seed, which is not to be missing among the model's random numbers.
            generator=torch.Generator(),
        )
        own = psutil.Process()
        before = set(own.children())
        try:
            self._batches: Iterator[_Batch | str] = iter(self._loader)
        except OSError as error:
            expected = f"data_workers: expected {worker_count} processes to start"
            raise RankFailed(FailureKind.TRAINER_RAISED, f"{expected}, got: {error}") from error
        self._workers = [process for process in own.children() if process not in before]

    def begin(self, shares: Iterator[IndexArray]) -> None:
        """Load these batches from now on, in this order; none of those before."""
        self._order.begin(shares)
        self._batches = iter(self._loader)

    def next(self, indices: IndexArray) -> _Batch:
        """Return inputs and labels of the next batch, which has these examples.

        Without any it has the first example of all.

        Raises:
            RankFailed: an example cannot be read any more, or a process has ended.
        """
        begun_s = time.monotonic()
        try:
            batch = next(self._batches)
        except (RuntimeError, OSError, EOFError) as error:
            # Its connection may break before PyTorch notices that a process has ended.
            reason = f"data_workers: expected processes that load examples, got: {error!r}"
            raise RankFailed(FailureKind.TRAINER_RAISED, reason) from error
        self._wait_s += time.monotonic() - begun_s
        if isinstance(batch, str):
            raise RankFailed(FailureKind.TRAINER_RAISED, f"an example cannot be loaded: {batch}")
        assert np.array_equal(self._order.pop(), indices), "steps are in another order"
        return batch

    def take_wait_s(self) -> float:
        """Return for how long `next` has waited since the last call."""
        wait_s, self._wait_s = self._wait_s, 0.0
        return wait_s

    def cpu_s(self) -> float:
        """Return the processor time of its processes."""
        total_s = 0.0
        for process in self._workers:
            try:
                times = process.cpu_times()
            except psutil.Error:
                continue
            total_s += times.user + times.system
        return total_s

    def close(self) -> None:
        """End the processes."""
        del self._batches, self._loader


class _Order:
    """The shares of the steps to come; it remembers those that are being loaded."""

    def __init__(self) -> None:
        self._shares: Iterator[IndexArray] = iter(())
        self._loading: deque[IndexArray] = deque()

    def begin(self, shares: Iterator[IndexArray]) -> None:
        self._shares = shares
        self._loading.clear()

    def __iter__(self) -> Iterator[IndexArray]:
        for indices in self._shares:
            self._loading.append(indices)
            yield indices

    def pop(self) -> IndexArray:
        return self._loading.popleft()


class _Batches(Dataset[Any]):
    """Maps a share to its examples, or to the reason why there are none."""

    def __init__(self, train: Examples) -> None:
        self._train = train

    def __getitem__(self, places: IndexArray) -> _Batch | str:
        try:
            inputs, labels = read_examples(self._train, places)
        except (OSError, ValueError) as error:
            return str(error)
        return torch.from_numpy(inputs), torch.from_numpy(labels)


def _begin_worker(number: int) -> None:
    del number
    end_with_parent()


def _check_shared_memory(train: Examples, *, batch_size: int, batch_count: int) -> None:
    """Refuse to begin where a batch would end a process by SIGBUS."""
    needed = batch_count * batch_size * (train.inputs[0].nbytes + train.labels[0].nbytes)
    free = os.statvfs(_SHARED_MEMORY)
    free_bytes = free.f_bavail * free.f_frsize
    if needed > free_bytes:
        raise RankFailed(
            FailureKind.TRAINER_RAISED,
            f"data_workers: expected {byte_count(needed)} free in {_SHARED_MEMORY} for"
            f" {batch_count} batches, got {byte_count(free_bytes)}; enlarge it, or take fewer",
        )
