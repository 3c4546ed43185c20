"""Streams of tokens as data sets of a user's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from farm.errors import InvalidSpec
from farm.registry import dataset
from farm.trainers.contracts import LoadedDataset
from farm.trainers.datasets.own.own_dataset import examine
from farm.trainers.failures import DatasetMissing
from tests.own_data_files import images, name_of, tokens, write_npz, write_token_file


def loaded(path: Path) -> LoadedDataset:
    """What an agent reads of it in sequences of 8, by the name that `farm data` prints."""
    return dataset(name_of(path, sequence_length=8)).load((path.parent,))


def test_a_stream_is_cut_into_sequences_with_what_follows_each_token(tmp_path: Path) -> None:
    path = write_token_file(tmp_path / "mine.bin")
    assert name_of(path, sequence_length=8).endswith(":8:16:180:20")
    data = loaded(path)
    inputs = np.concatenate([data.train.inputs, data.test.inputs])
    labels = np.concatenate([data.train.labels, data.test.labels])
    assert (inputs.dtype, labels.dtype) == (np.dtype(np.int32), np.dtype(np.int64))
    assert np.array_equal(inputs.reshape(-1), tokens(1600))
    assert np.array_equal(labels.reshape(-1), tokens(1601)[1:])


def test_what_is_left_over_at_the_end_is_left_out(tmp_path: Path) -> None:
    tokens(1608).astype("<u2").tofile(tmp_path / "mine.bin")
    assert loaded(tmp_path / "mine.bin").train.inputs.shape == (180, 8)


def test_numbers_of_any_width_are_read_from_an_array(tmp_path: Path) -> None:
    np.save(tmp_path / "mine.npy", tokens(1601).astype(">i8"))
    other = write_token_file(tmp_path / "mine.bin")
    contents = [
        name_of(path, sequence_length=8).partition("@")[2]
        for path in (tmp_path / "mine.npy", other)
    ]
    assert contents[0] == contents[1]


def test_nanogpts_folder_has_its_own_test_split(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    tokens(801).astype("<u2").tofile(folder / "train.bin")
    tokens(17).astype("<u2").tofile(folder / "val.bin")
    data = loaded(folder)
    assert (data.train.inputs.shape, data.test.inputs.shape) == ((100, 8), (2, 8))


def test_a_token_beyond_those_of_the_name_is_refused_though_nothing_predicts_it(
    tmp_path: Path,
) -> None:
    stream = tokens(1601)
    stream[0] = 99
    np.save(tmp_path / "mine.npy", stream)
    name = name_of(tmp_path / "mine.npy", sequence_length=8)
    with pytest.raises(DatasetMissing, match="expected tokens from 0 to 15, got 0 to 99"):
        dataset(name.replace(":100:", ":16:")).load((tmp_path,))


def having(content: Any) -> Callable[[Path], Any]:
    return lambda path: np.save(path, content, allow_pickle=True)


@pytest.mark.parametrize(
    ("name", "write", "expected"),
    [
        ("mine.bin", lambda path: path.write_bytes(b""), "at least 17 tokens .* got 0"),
        ("mine.bin", lambda path: path.write_bytes(b"abc"), "16 bits, got an odd number of bytes"),
        ("mine.bin", lambda path: path.write_bytes(b"ab" * 16), "at least 17 tokens .* got 16"),
        ("mine.bin", lambda path: path.write_bytes(bytes(80)), "at least two different labels"),
        ("mine.npy", lambda path: path.write_bytes(b""), r"expected an array that numpy\.save"),
        ("mine.npy", having(tokens(99) - 1), "expected tokens from 0 to 9999999, got -1 to 14"),
        ("mine.npy", having(tokens(99).astype(np.uint64) << 60), "expected tokens from 0 to"),
        ("mine.npy", having(tokens(99) / 2), "expected whole numbers, got float64"),
        ("mine.npy", having(tokens(99).astype(object)), "expected whole numbers, got object"),
        ("mine.npy", having(tokens(99).reshape(3, 33)), r"one stream .* got shape \(3, 33\)"),
        ("mine.npy", having(np.int64(3)), r"one stream of tokens, got shape \(\)"),
    ],
)
def test_what_is_no_stream_is_refused_in_one_line(
    name: str, write: Callable[[Path], Any], expected: str, tmp_path: Path
) -> None:
    write(tmp_path / name)
    with pytest.raises(DatasetMissing, match=expected) as refused:
        examine(tmp_path / name, sequence_length=8)
    assert "\n" not in str(refused.value)


def test_the_name_of_images_does_not_fit_tokens(tmp_path: Path) -> None:
    write_token_file(tmp_path / "mine.bin")
    with pytest.raises(DatasetMissing, match="expected images, got tokens"):
        dataset("data:mine.bin@b005a2175131:8x8x3:4:60:12").load((tmp_path,))
    write_npz(tmp_path / "mine.npz")
    with pytest.raises(DatasetMissing, match=r"expected training tokens of shape \(60, 8\)"):
        dataset("data:mine.npz@b005a2175131:8:4:60:12").load((tmp_path,))


def test_only_tokens_have_a_length_and_only_folders_of_images_a_side(tmp_path: Path) -> None:
    of_tokens = write_token_file(tmp_path / "mine.bin")
    arrays = write_npz(tmp_path / "mine.npz", x_test=images(12)[0])
    for path, options in (
        (of_tokens, {}),
        (arrays, {"sequence_length": 8}),
        (arrays, {"image_side": 9}),
        (of_tokens, {"sequence_length": 8, "image_side": 9}),
    ):
        with pytest.raises(InvalidSpec, match=r"^--(sequence-length|image-side): expected"):
            examine(path, **options)
