"""Data sets of a user's own on an agent: what is read, and what is refused before it is trained."""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from farm.errors import InvalidSpec
from farm.messages.trainer_lines import FailureKind
from farm.registry import dataset
from farm.trainers.datasets.own.own_dataset import examine
from farm.trainers.failures import DatasetMissing
from tests.own_data_files import images, name_of, write_npz

MINE = "mine.npz"
NOBODY = 65534


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    name = name_of(write_npz(tmp_path / MINE))
    assert name.endswith(":8x8x3:4:60:12")
    data = dataset(name).load((tmp_path / "empty", tmp_path))
    for split, (inputs, labels) in ((data.train, images(60)), (data.test, images(12))):
        assert np.array_equal(split.inputs, inputs)
        assert np.array_equal(split.labels, labels)
        assert split.inputs.dtype == np.uint8
        assert split.labels.dtype == np.int64
    assert data.source.name == name
    assert data.source.origin == str(tmp_path / MINE)
    assert not data.source.is_synthetic
    assert data.source.sha256.startswith(name.partition("@")[2][:12])


def test_grey_images_and_columns_of_labels_are_read_too(tmp_path: Path) -> None:
    (x_train, y_train), (x_test, y_test) = images(60, channels=1), images(12, channels=1)
    plain = write_npz(tmp_path / "plain.npz", x_train=x_train, x_test=x_test)
    other = write_npz(
        tmp_path / "other.npz",
        x_train=np.asfortranarray(x_train[..., 0]),
        y_train=y_train.astype(">i4").reshape(-1, 1),
        x_test=x_test[..., 0],
        y_test=y_test.astype(np.uint8),
    )
    assert name_of(other).partition("@")[2] == name_of(plain).partition("@")[2]


def test_the_content_decides_and_not_how_it_is_packed(tmp_path: Path) -> None:
    path = write_npz(tmp_path / MINE)
    name = name_of(path)
    with np.load(path) as arrays:
        np.savez(path, **dict(arrays))
    assert name_of(path) == name
    write_npz(path, y_test=1 - images(12, class_count=2)[1])
    with pytest.raises(
        DatasetMissing, match=r"mine\.npz: expected content \w{12}, got \w{12}; copy"
    ):
        dataset(name).load((tmp_path,))


@pytest.mark.parametrize(
    ("digest", "claimed", "expected"),
    [
        ("8x8x3", "8x9x3", r"expected training images of shape \(60, 8, 9, 3\), got \(60, 8, 8, 3"),
        (":4:60:", ":3:60:", "expected labels from 0 to 2, got 0 to 3"),
        (":60:12", ":60:13", r"expected test images of shape \(13,"),
    ],
)
def test_a_name_that_says_something_else_is_refused(
    digest: str, claimed: str, expected: str, tmp_path: Path
) -> None:
    name = name_of(write_npz(tmp_path / MINE)).replace(digest, claimed)
    with pytest.raises(DatasetMissing, match=expected):
        dataset(name).load((tmp_path,))


def test_more_classes_than_labels_may_be_claimed(tmp_path: Path) -> None:
    name = name_of(write_npz(tmp_path / MINE)).replace(":4:60:", ":10:60:")
    assert dataset(name).load((tmp_path,)).source.name == name


def test_an_agent_without_it_says_where_to_put_it(tmp_path: Path) -> None:
    with pytest.raises(DatasetMissing, match=f"mine.npz is in none of {tmp_path}; put it") as one:
        dataset("data:mine.npz@b005a2175131:8x8x3:4:60:12").load((tmp_path,))
    assert one.value.kind is FailureKind.DATASET_MISSING


@pytest.mark.root
@pytest.mark.parametrize("closed", ["mine.npz", "."])
def test_files_that_the_trainers_user_may_not_read_are_named_with_the_remedy(closed: str) -> None:
    # pytest's own folders are root's alone.
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        place.chmod(0o755)
        entry = dataset(name_of(write_npz(place / MINE)))
        entry.load((place,))  # what it imports, that user may not read either
        (place / closed).chmod(0o700)
        os.seteuid(NOBODY)
        try:
            with pytest.raises(DatasetMissing, match=r"chmod -R o\+rX") as refused:
                entry.load((place,))
        finally:
            os.seteuid(0)
        assert folder in str(refused.value)


def write_bomb(path: Path) -> None:
    """A header that claims a petabyte, and a member that claims it too."""
    with zipfile.ZipFile(path, "w") as archive:
        for key in ("x_train", "y_train", "x_test", "y_test"):
            with archive.open(f"{key}.npy", "w") as file:
                header = {"descr": "|u1", "fortran_order": False, "shape": (1 << 50,)}
                np.lib.format.write_array_header_1_0(file, header)
        archive.filelist[0].file_size = 1 << 50


def write_short(path: Path) -> None:
    """A header that claims more than there is, of a size that fits into memory."""
    write_npz(path)
    with zipfile.ZipFile(path) as old:
        kept = {name: old.read(name) for name in old.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in kept.items():
            archive.writestr(name, content[:-1] if name == "y_test.npy" else content)


def write_deep(path: Path) -> None:
    """A header that nests too deep for Python's parser."""
    text = b"1+" * 3000 + b"1"
    write_npz(path)
    with zipfile.ZipFile(path) as old:
        kept = {name: old.read(name) for name in old.namelist()}
    kept["x_train.npy"] = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in kept.items():
            archive.writestr(name, content)


def write_encrypted(path: Path) -> None:
    write_npz(path)
    content = bytearray(path.read_bytes())
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = content.find(signature)
        content[place + offset] |= 1
    path.write_bytes(content)


def write_text(path: Path) -> None:
    path.write_text("no zip")


def write_fifo(path: Path) -> None:
    os.mkfifo(path)


def having(**arrays: Any) -> Callable[[Path], Any]:
    return lambda path: write_npz(path, **arrays)


IMAGES, LABELS = images(60)


@pytest.mark.parametrize(
    ("write", "expected"),
    [
        (write_text, r"expected a file that numpy\.savez wrote"),
        (write_fifo, r"expected a folder of images or arrays, or a file that ends in \.npz"),
        (write_bomb, "this machine's memory, got"),
        (write_short, "y_test: expected a file as large as its header says"),
        (write_deep, "x_train: expected an array that numpy.save wrote"),
        (write_encrypted, "password"),
        (lambda path: np.savez(path, x_train=IMAGES), "expected arrays x_train, y_train, x_test"),
        (having(x_train=IMAGES / 255), "whole numbers, got float64; images are uint8"),
        (
            having(x_train=IMAGES.astype(np.int64)),
            r"got int64; convert them with astype\('uint8'\)",
        ),
        (having(x_train=IMAGES.astype(object)), "x_train: expected whole numbers, got object"),
        (having(x_train=np.zeros(60, "u1,u1")), "x_train: expected whole numbers"),
        (having(x_train=IMAGES[0, 0]), r"x_train: expected images .* got shape \(8, 3\)"),
        (having(x_train=IMAGES[:0], y_train=LABELS[:0]), "x_train: expected images"),
        (having(y_train=LABELS[:-1]), r"expected 60 labels, .* got shape \(59,\)"),
        (having(y_train=np.eye(4, dtype=int)[LABELS]), r"60 labels, .* got shape \(60, 4\)"),
        (having(y_train=LABELS - 1), "expected labels from 0 to 9999999, got -1 to 2"),
        (having(y_train=LABELS.astype(np.uint64) << 62), "expected labels from 0 to 9999999"),
        (having(y_train=LABELS + 0.5), "y_train: expected whole numbers, got float64"),
        (having(y_train=np.full(60, np.nan)), "y_train: expected whole numbers, got float64"),
        (
            having(y_train=LABELS * 0, y_test=images(12)[1] * 0),
            "at least two different labels, got 0",
        ),
    ],
)
def test_what_is_no_data_set_is_refused_in_one_line(
    write: Callable[[Path], Any], expected: str, tmp_path: Path
) -> None:
    write(tmp_path / MINE)
    with pytest.raises(DatasetMissing, match=expected) as refused:
        examine(tmp_path / MINE)
    assert "\n" not in str(refused.value)
    assert str(tmp_path) in str(refused.value)


def test_images_of_two_shapes_are_refused(tmp_path: Path) -> None:
    path = write_npz(tmp_path / MINE, x_test=images(12, side=9)[0])
    with pytest.raises(DatasetMissing, match=r"expected test images of shape \(12, 8, 8, 3\)"):
        examine(path)


def test_no_data_set_has_a_name_that_no_sweep_may_say(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match=r"'my data\.npz'"):
        examine(write_npz(tmp_path / "my data.npz"))
