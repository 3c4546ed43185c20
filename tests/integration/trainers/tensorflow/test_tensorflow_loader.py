"""Batches that tf.data loads ahead of a rank's steps."""

from __future__ import annotations

import collections
import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from farm import registry
from farm.configuration.spec import JobSpec, ServerPlacement
from farm.messages.trainer_lines import Failure, FailureKind, Started, TrainerResult
from farm.trainers.contracts import Examples
from farm.trainers.failures import RankFailed
from farm.trainers.processes.process import EXIT_FAILED
from farm.trainers.strategies import STRATEGIES
from tests.integration.trainer_process import DEADLINE_S, gang, results
from tests.own_data_files import name_of, write_image_folder

# Of 1437 = 4 * 359 + 1 examples the last step of an epoch has one, and rank 1 has none.
PAIR = JobSpec(
    model="mlp",
    dataset="digits",
    strategy="mwms_ring",
    world_size=2,
    global_batch_size=359,
    epochs=2,
    warmup_step_count=3,
)
LOADER = {"input_pipeline": "loader", "data_workers": 2}
COUNT = 40
STRATEGIES_OF_TENSORFLOW = [s.facts for s in STRATEGIES if s.facts.framework == "tensorflow"]


@pytest.fixture
def loader_of() -> Iterator[Callable[..., Any]]:
    from farm.trainers.tensorflow.loader import TensorFlowLoader

    with contextlib.ExitStack() as stack:

        def made(train: Examples, *, worker_count: int) -> Any:
            loader = TensorFlowLoader(train, worker_count=worker_count)
            stack.callback(loader.close)
            return loader

        yield made


def examples(**fields: Any) -> Examples:
    inputs = np.arange(COUNT * 4, dtype=np.uint8).reshape(COUNT, 2, 2, 1)
    return Examples(inputs=inputs, labels=np.arange(COUNT, dtype=np.int64), **fields)


def shares_from(first: int) -> list[Any]:
    return [np.arange(i, i + 4, dtype=np.int32) for i in range(first, COUNT - 3, 4)]


def eventually(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + DEADLINE_S
    while not condition() and time.monotonic() < deadline:
        os.sched_yield()
    return condition()


def trained(job: JobSpec, folder: Path, *, data_dir: Path | None = None) -> list[TrainerResult]:
    folder.mkdir()
    with gang(job, folder, data_dir=data_dir) as trainers:
        ranks = [trainer for trainer in trainers if trainer.role == "worker"]
        return results(ranks)


def sums(ranks: list[TrainerResult]) -> list[object]:
    return [(r.details["weights_sum"], r.details["weights_square_sum"]) for r in ranks]


@pytest.mark.slow
@pytest.mark.parametrize("facts", STRATEGIES_OF_TENSORFLOW, ids=lambda facts: facts.name)
def test_what_is_loaded_trains_the_same_weights_as_what_is_in_memory(
    facts: Any, tmp_path: Path
) -> None:
    job = replace(
        PAIR,
        strategy=facts.name,
        world_size=facts.max_world_size or 2,
        replicas_per_rank=2 if "replicas_per_rank" in facts.axes else 1,
        steps_between_averages=2 if "steps_between_averages" in facts.axes else 1,
        server_count=1 if facts.uses_servers else 0,
        server_placement=ServerPlacement.COLLOCATED,
    )
    memory = trained(job, tmp_path / "memory")
    loaded = trained(replace(job, axes=LOADER), tmp_path / "loader")
    assert [r.data_wait_s is None for r in (*memory, *loaded)] == [
        *[True] * job.world_size,
        *[False] * job.world_size,
    ]
    assert [r.exchange and r.exchange.update_count for r in loaded] == [
        r.exchange and r.exchange.update_count for r in memory
    ]
    if facts.uses_servers and not facts.is_synchronous:
        return  # whose updates come in an order of their own
    if facts.uses_servers or facts.name == "central_reduce":
        # The ranks' gradients are added up in the order in which they come.
        assert np.allclose(sums(loaded), sums(memory), rtol=1e-5)  # type: ignore[arg-type]
    else:
        assert sums(loaded) == sums(memory)


@pytest.mark.parametrize("worker_count", [0, 2])
def test_batches_come_in_the_order_of_steps_and_begin_anew_when_told(
    worker_count: int, loader_of: Callable[..., Any]
) -> None:
    train = examples()
    loader = loader_of(train, worker_count=worker_count)
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


def test_each_thread_decodes_a_batch_while_others_decode_theirs(
    loader_of: Callable[..., Any],
) -> None:
    # Each waits for the other amid its batch, which one thread alone would do for ever.
    both = threading.Barrier(2, timeout=DEADLINE_S)

    def decode(place: int) -> Any:
        both.wait()
        return np.zeros((2, 2, 1), np.uint8)

    loader = loader_of(examples(decode=decode), worker_count=2)
    loader.begin(iter(shares_from(0)[:2]))
    for share in shares_from(0)[:2]:
        loader.next(share)


def test_without_workers_the_rank_decodes_by_itself_when_a_step_needs_it(
    loader_of: Callable[..., Any],
) -> None:
    decoded: collections.Counter[int] = collections.Counter()

    def decode(place: int) -> Any:
        decoded[int(place)] += 1
        return np.zeros((2, 2, 1), np.uint8)

    loader = loader_of(examples(decode=decode), worker_count=0)
    loader.begin(iter(shares_from(0)))
    assert decoded == {}
    loader.next(shares_from(0)[0])
    assert decoded == dict.fromkeys(range(4), 1)


def test_a_step_waits_for_all_that_it_decodes_itself(loader_of: Callable[..., Any]) -> None:
    spent_s: list[float] = []

    def decode(place: int) -> Any:
        begun_s = time.monotonic()
        while time.monotonic() < begun_s + 0.01:
            pass
        spent_s.append(time.monotonic() - begun_s)
        return np.zeros((2, 2, 1), np.uint8)

    loader = loader_of(examples(decode=decode), worker_count=0)
    loader.begin(iter(shares_from(0)))
    loader.next(shares_from(0)[0])
    assert loader.take_wait_s() >= sum(spent_s) >= 0.04
    assert loader.take_wait_s() == 0.0


def test_each_thread_is_two_batches_ahead_and_no_more(loader_of: Callable[..., Any]) -> None:
    decoded: list[int] = []

    def decode(place: int) -> Any:
        decoded.append(int(place))
        return np.zeros((2, 2, 1), np.uint8)

    loader = loader_of(examples(decode=decode), worker_count=2)
    loader.begin(iter(shares_from(0)))  # before any step, so that the first need not wait
    assert eventually(lambda: len(decoded) == 4 * 4)
    loader.next(shares_from(0)[0])
    assert eventually(lambda: len(decoded) == 5 * 4)
    assert sorted(decoded) == list(range(5 * 4))


def test_threads_end_with_what_they_load(loader_of: Callable[..., Any]) -> None:
    def thread_count() -> int:
        return len(list(Path("/proc/self/task").iterdir()))

    loader = loader_of(examples(), worker_count=1)  # TensorFlow's own threads start with the first
    loader.begin(iter(shares_from(0)))
    loader.next(shares_from(0)[0])
    before = thread_count()
    many = loader_of(examples(), worker_count=8)
    many.begin(iter(shares_from(0)))
    many.next(shares_from(0)[0])
    assert thread_count() >= before + 8
    many.close()
    assert eventually(lambda: thread_count() <= before)


def test_a_rank_that_is_abandoned_ends_amid_what_its_threads_load(tmp_path: Path) -> None:
    path = write_image_folder(tmp_path / "images")
    job = replace(
        PAIR,
        strategy="single",
        world_size=1,
        dataset=name_of(path),
        global_batch_size=8,
        epochs=None,
        steps=1_000_000,
        axes=LOADER,
    )
    with gang(job, tmp_path, data_dir=tmp_path) as [trainer]:
        trainer.wait_for(Started)
        assert trainer.process.stdin is not None
        trainer.process.stdin.close()
        assert trainer.process.wait(DEADLINE_S) is not None


@pytest.mark.parametrize("worker_count", [0, 2])
def test_a_file_that_is_gone_ends_the_training_with_one_line(
    worker_count: int, loader_of: Callable[..., Any]
) -> None:
    def decode(place: int) -> Any:
        raise FileNotFoundError(2, "No such file", "a.png")

    loader = loader_of(examples(decode=decode), worker_count=worker_count)
    loader.begin(iter(shares_from(0)))
    with pytest.raises(RankFailed, match=r"^an example cannot be loaded: .* 'a.png'$"):
        loader.next(shares_from(0)[0])


def test_images_of_a_folder_are_decoded_again_for_each_step(
    tmp_path: Path, loader_of: Callable[..., Any]
) -> None:
    path = write_image_folder(tmp_path / "images", suffix=".jpg")
    train = registry.dataset(name_of(path)).load((tmp_path,)).train
    share = np.array([3, 0, 5, 3], np.int32)
    loader = loader_of(train, worker_count=1)
    loader.begin(iter([share]))
    inputs, _ = loader.next(share)
    assert train.decode is not None
    assert inputs.numpy().tolist() == train.inputs[share].tolist()


def test_a_folder_that_is_emptied_amid_a_training_ends_it_with_its_reason(tmp_path: Path) -> None:
    path = write_image_folder(tmp_path / "images")
    job = replace(
        PAIR,
        strategy="single",
        world_size=1,
        dataset=name_of(path),
        global_batch_size=8,
        epochs=None,
        steps=1_000_000,
        axes=LOADER,
    )
    with gang(job, tmp_path, data_dir=tmp_path) as [trainer]:
        trainer.wait_for(Started)
        for image in path.rglob("*.png"):
            image.unlink()
        failure = trainer.wait_for(Failure)
        assert trainer.process.wait(DEADLINE_S) == EXIT_FAILED
    assert failure.kind is FailureKind.TRAINER_RAISED
    assert failure.message.startswith("an example cannot be loaded: ")
