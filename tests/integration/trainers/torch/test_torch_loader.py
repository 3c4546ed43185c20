"""Batches that PyTorch's DataLoader loads ahead of a rank's steps."""

from __future__ import annotations

import collections
import contextlib
import multiprocessing
import os
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from farm import registry
from farm.configuration.spec import JobSpec
from farm.messages.trainer_lines import Failure, FailureKind, GoLine, Started
from farm.trainers.contracts import Examples, RankContext
from farm.trainers.failures import RankFailed
from farm.trainers.processes.process import EXIT_FAILED
from farm.trainers.strategies import STRATEGIES
from tests.integration.trainer_process import DEADLINE_S, gang, results
from tests.own_data_files import name_of, write_image_folder

pytestmark = pytest.mark.torch

# Of 1437 = 4 * 359 + 1 examples the last step of an epoch has one, and rank 1 has none.
PAIR = JobSpec(
    model="mlp",
    dataset="digits",
    strategy="torch_ddp",
    world_size=2,
    global_batch_size=359,
    epochs=2,
    warmup_step_count=3,
)
LOADER = {"input_pipeline": "loader", "data_workers": 2}
COUNT = 40


@contextlib.contextmanager
def loading(train: Examples, *, worker_count: int) -> Iterator[Any]:
    from farm.trainers.torch.loader import BatchLoader

    loader = BatchLoader(train, worker_count=worker_count, batch_size=4)
    try:
        yield loader
    finally:
        loader.close()


def examples(**fields: Any) -> Examples:
    inputs = np.arange(COUNT * 4, dtype=np.uint8).reshape(COUNT, 2, 2, 1)
    return Examples(inputs=inputs, labels=np.arange(COUNT, dtype=np.int64), **fields)


def shares_from(first: int) -> list[Any]:
    return [np.arange(i, i + 4, dtype=np.int32) for i in range(first, COUNT - 3, 4)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [s.facts.name for s in STRATEGIES if s.facts.has_loader and s.facts.framework == "torch"],
)
def test_what_is_loaded_trains_the_same_weights_as_what_is_in_memory(
    name: str, tmp_path: Path
) -> None:
    job = replace(PAIR, strategy=name)
    if "steps_between_averages" in registry.strategy(name).facts.axes:
        job = replace(job, steps_between_averages=2)
    found = []
    for axes in ({}, LOADER):
        folder = tmp_path / str(len(axes))
        folder.mkdir()
        with gang(replace(job, axes=axes), folder) as trainers:
            came = results(trainers)
        found.append([(r.details["weights_sum"], r.details["weights_square_sum"]) for r in came])
        assert [r.data_wait_s is None for r in came] == [axes == {}] * 2
    memory, loader = found
    assert loader == memory


@pytest.mark.parametrize("worker_count", [0, 2])
def test_batches_come_in_the_order_of_steps_and_begin_anew_when_told(worker_count: int) -> None:
    train = examples()
    with loading(train, worker_count=worker_count) as loader:
        for first in (0, 8):
            loader.begin(iter(shares_from(first)))
            for share in shares_from(first)[:3]:  # others have been loaded ahead
                inputs, labels = loader.next(share)
                assert inputs.numpy().tolist() == train.inputs[share].tolist()
                assert labels.numpy().tolist() == share.tolist()
        nobody = np.empty(0, np.int32)
        loader.begin(iter([nobody]))
        inputs, _ = loader.next(nobody)
        assert inputs.shape == (1, 2, 2, 1)


def test_each_worker_decodes_a_batch_while_others_decode_theirs() -> None:
    # Each waits for the other amid its batch, which one process alone would do for ever.
    both = multiprocessing.get_context("fork").Barrier(2, timeout=DEADLINE_S)

    def decode(place: int) -> Any:
        both.wait()
        return np.full((2, 2, 1), os.getpid() % 251, np.uint8)

    with loading(examples(decode=decode), worker_count=2) as loader:
        loader.begin(iter(shares_from(0)[:2]))
        pids = {int(loader.next(share)[0][0, 0, 0, 0]) for share in shares_from(0)[:2]}
    assert len(pids) == 2
    assert os.getpid() % 251 not in pids


def test_without_workers_the_rank_decodes_by_itself_when_a_step_needs_it() -> None:
    decoded: collections.Counter[int] = collections.Counter()

    def decode(place: int) -> Any:
        decoded[place] += 1
        return np.zeros((2, 2, 1), np.uint8)

    with loading(examples(decode=decode), worker_count=0) as loader:
        loader.begin(iter(shares_from(0)))
        assert decoded == {}
        loader.next(shares_from(0)[0])
    assert decoded == dict.fromkeys(range(4), 1)


def test_a_step_waits_for_all_that_it_decodes_itself() -> None:
    spent_s: list[float] = []

    def decode(place: int) -> Any:
        begun_s = time.monotonic()
        while time.monotonic() < begun_s + 0.01:
            pass
        spent_s.append(time.monotonic() - begun_s)
        return np.zeros((2, 2, 1), np.uint8)

    with loading(examples(decode=decode), worker_count=0) as loader:
        loader.begin(iter(shares_from(0)))
        loader.next(shares_from(0)[0])
        assert loader.take_wait_s() >= sum(spent_s) >= 0.04
        assert loader.take_wait_s() == 0.0


def test_a_step_waits_for_nothing_that_workers_have_decoded_ahead() -> None:
    context = multiprocessing.get_context("fork")
    decoded, gate = context.Semaphore(0), context.Event()

    def decode(place: int) -> Any:
        if place >= 16:  # beyond the four batches that two workers load ahead
            gate.wait(DEADLINE_S)
        decoded.release()
        return np.zeros((2, 2, 1), np.uint8)

    with loading(examples(decode=decode), worker_count=2) as loader:
        loader.begin(iter(shares_from(0)))
        for _ in range(16):
            assert decoded.acquire(timeout=DEADLINE_S)
        for share in shares_from(0)[:4]:
            loader.next(share)  # though no worker goes on
        gate.set()


def test_the_processor_time_of_workers_is_the_loaders() -> None:
    def decode(place: int) -> Any:
        begun_s = time.process_time()
        while time.process_time() < begun_s + 0.05:
            pass
        return np.zeros((2, 2, 1), np.uint8)

    with loading(examples(decode=decode), worker_count=1) as loader:
        before_s = loader.cpu_s()
        [share, *_] = shares_from(0)
        loader.begin(iter([share]))
        loader.next(share)
        # The kernel counts in ticks of a hundredth of a second.
        assert loader.cpu_s() > before_s + 0.19 - 0.02


def test_workers_end_with_a_trainer_that_is_killed(tmp_path: Path) -> None:
    job = replace(PAIR, world_size=1, epochs=None, steps=1_000_000, axes=LOADER)
    with gang(job, tmp_path) as trainers:
        [trainer] = trainers
        trainer.wait_for(Started)
        workers = psutil.Process(trainer.process.pid).children()
        assert len(workers) == 2
        trainer.process.kill()
        _, alive = psutil.wait_procs(workers, timeout=DEADLINE_S)
    assert not alive


def test_a_worker_that_is_killed_ends_the_training_with_its_reason(tmp_path: Path) -> None:
    job = replace(PAIR, world_size=1, epochs=None, steps=1_000_000, axes=LOADER)
    with gang(job, tmp_path) as trainers:
        [trainer] = trainers
        trainer.wait_for(Started)
        psutil.Process(trainer.process.pid).children()[0].kill()
        failure = trainer.wait_for(Failure)
        assert trainer.process.wait(DEADLINE_S) == EXIT_FAILED
    assert failure.kind is FailureKind.TRAINER_RAISED
    # Its end may be noticed amid a step, too.
    assert re.search("^data_workers: expected processes|DataLoader worker", failure.message)


@pytest.mark.parametrize("worker_count", [0, 2])
def test_a_file_that_is_gone_ends_the_training_with_one_line(worker_count: int) -> None:
    def decode(place: int) -> Any:
        raise FileNotFoundError(2, "No such file", "a.png")

    with loading(examples(decode=decode), worker_count=worker_count) as loader:
        loader.begin(iter(shares_from(0)))
        with pytest.raises(RankFailed, match=r"^an example cannot be loaded: .* 'a.png'$"):
            loader.next(shares_from(0)[0])


def test_batches_that_shared_memory_cannot_hold_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = os.statvfs("/dev/shm")
    full = os.statvfs_result((*whole[:4], 0, *whole[5:]))  # of the blocks none is free
    monkeypatch.setattr(os, "statvfs", lambda path: full)
    with (
        pytest.raises(RankFailed, match=r"^data_workers: expected .* free in /dev/shm"),
        loading(examples(), worker_count=1),
    ):
        pass
    with loading(examples(), worker_count=0):  # which needs none
        pass


def test_shared_memory_has_to_hold_the_shares_of_an_agents_ranks_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from farm.trainers.torch.loader import batch_loader

    dataset = registry.dataset("digits")
    rank_context = RankContext(
        job=replace(PAIR, world_size=4, global_batch_size=400, axes=LOADER),
        rank=1,
        role="worker",
        go=GoLine(cluster={"worker": ("127.0.0.1:1",)}, task_index=1),
        model=registry.model("mlp"),
        dataset=dataset.facts,
        data=dataset.load(()),
        peer_timeout_s=10.0,
    )
    whole = os.statvfs("/dev/shm")
    # Five batches of 100 digits of 64 bytes, with labels of 8.
    enough = os.statvfs_result((whole[0], 1, *whole[2:4], 36_000, *whole[5:]))
    monkeypatch.setattr(os, "statvfs", lambda path: enough)
    loader = batch_loader(rank_context)
    assert loader is not None
    loader.close()
    with pytest.raises(RankFailed, match=r"expected .* free in /dev/shm"):
        batch_loader(replace(rank_context, job=replace(rank_context.job, global_batch_size=404)))
    together = replace(rank_context.job, axes={**LOADER, "ranks_per_agent": 2})
    with pytest.raises(RankFailed, match=r"expected 72.0 kB free in /dev/shm for 10 batches"):
        batch_loader(replace(rank_context, job=together))


def test_images_of_a_folder_are_decoded_again_for_each_step(tmp_path: Path) -> None:
    path = write_image_folder(tmp_path / "images")
    dataset = registry.dataset(name_of(path))
    train = dataset.load((tmp_path,)).train
    share = np.array([3, 0, 5, 3], np.int32)
    with loading(train, worker_count=1) as loader:
        loader.begin(iter([share]))
        inputs, _ = loader.next(share)
    assert train.decode is not None
    assert inputs.numpy().tolist() == train.inputs[share].tolist()
