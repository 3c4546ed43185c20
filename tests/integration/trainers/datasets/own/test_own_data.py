"""Real trainers on a data set of a user's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from farm.configuration.spec import JobSpec
from farm.messages.trainer_lines import Failure, FailureKind, Ready
from tests.integration.trainer_process import gang, results, started
from tests.own_data_files import name_of, write_image_folder, write_npz, write_token_file

pytestmark = pytest.mark.alone


def job(path: Path, *, strategy: str, world_size: int = 2) -> JobSpec:
    return JobSpec(
        model="mlp",
        dataset=name_of(path),
        strategy=strategy,
        world_size=world_size,
        global_batch_size=20,
        epochs=100,
    )


@pytest.mark.parametrize(
    ("write", "strategy", "world_size"),
    [
        pytest.param(write_image_folder, "single", 1, marks=pytest.mark.tensorflow),
        pytest.param(write_npz, "torch_ddp", 2, marks=pytest.mark.torch),
    ],
)
def test_both_frameworks_learn_it(
    write: Callable[[Path], Path], strategy: str, world_size: int, tmp_path: Path
) -> None:
    path = write(tmp_path / "mine.npz")  # a folder may be called so, too
    spec = job(path, strategy=strategy, world_size=world_size)
    with gang(spec, tmp_path, data_dir=tmp_path) as trainers:
        first, *_ = results(trainers)
    source = trainers[0].seen(Ready)[0].dataset
    assert (source.name, source.origin) == (spec.dataset, str(path))
    assert source.train_examples_count >= 56
    assert first.val_accuracy_ratio is not None
    assert first.val_accuracy_ratio > 0.9  # a quarter by guessing


@pytest.mark.torch
def test_an_agent_with_another_content_is_refused_before_anything_connects(tmp_path: Path) -> None:
    spec = job(write_npz(tmp_path / "mine.npz"), strategy="torch_ddp")
    (tmp_path / "other").mkdir()
    other = write_npz(tmp_path / "other" / "mine.npz", y_test=[0, 1, 2] * 4)
    with started(spec, tmp_path, data_dir=other.parent) as trainers:
        for trainer in trainers:
            trainer.exit_code()
            [failure] = [event for event in trainer.arrived() if isinstance(event, Failure)]
            assert failure.kind is FailureKind.DATASET_MISSING
            assert "other/mine.npz: expected content " in failure.message


@pytest.mark.torch
def test_a_stream_of_tokens_is_learned(tmp_path: Path) -> None:
    path = write_token_file(tmp_path / "mine.bin")
    spec = JobSpec(
        model="gpt2_tiny",
        dataset=name_of(path, sequence_length=16),
        strategy="torch_ddp",
        world_size=1,
        global_batch_size=18,
        epochs=20,
    )
    with gang(spec, tmp_path, data_dir=tmp_path) as trainers:
        [result] = results(trainers)
    assert result.val_accuracy_ratio is not None
    assert result.val_accuracy_ratio > 0.9  # a sixteenth by guessing
