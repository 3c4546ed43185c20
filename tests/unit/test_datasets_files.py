"""The readers of published files, on small files of the same forms."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from farm.registry import dataset
from farm.trainers.datasets.cifar10_files import BATCH_NAMES, read_batch, read_cifar10
from farm.trainers.datasets.mnist_files import read_idx, read_mnist
from farm.trainers.failures import DatasetMissing

RNG = np.random.default_rng(0)
TRAIN = RNG.integers(0, 256, (3, 28, 28), dtype=np.uint8), np.array([1, 2, 3], np.uint8)
TEST = RNG.integers(0, 256, (2, 28, 28), dtype=np.uint8), np.array([9, 0], np.uint8)


def idx(array: NDArray[np.uint8]) -> bytes:
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    return header + array.tobytes()


def write_idx(folder: Path, *, pack: Callable[[bytes], bytes] = bytes, suffix: str = "") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, (images, labels) in (("train", TRAIN), ("t10k", TEST)):
        (folder / f"{name}-images-idx3-ubyte{suffix}").write_bytes(pack(idx(images)))
        (folder / f"{name}-labels-idx1-ubyte{suffix}").write_bytes(pack(idx(labels)))


def write_npz(folder: Path) -> None:
    np.savez(
        folder / "mnist.npz", x_train=TRAIN[0], y_train=TRAIN[1], x_test=TEST[0], y_test=TEST[1]
    )


def write_zipped_idx(folder: Path) -> None:
    write_idx(folder, pack=gzip.compress, suffix=".gz")


def write_torchvision(folder: Path) -> None:
    write_idx(folder / "MNIST" / "raw")


@pytest.mark.parametrize("write", [write_idx, write_zipped_idx, write_torchvision, write_npz])
def test_mnist_is_read_from_every_form_it_comes_in(
    write: Callable[[Path], None], tmp_path: Path
) -> None:
    write(tmp_path)
    found = read_mnist(tmp_path)
    assert found is not None
    for split, (images, labels) in ((found.train, TRAIN), (found.test, TEST)):
        assert np.array_equal(split.images[..., 0], images)
        assert split.images.shape[1:] == (28, 28, 1)
        assert np.array_equal(split.labels, labels)
        assert split.labels.dtype == np.int64


def test_a_place_without_the_files_has_nothing(tmp_path: Path) -> None:
    assert read_mnist(tmp_path) is None
    assert read_cifar10(tmp_path) is None


@pytest.mark.parametrize(
    "content",
    [b"", b"\0\0\x08", b"\0\0\x0d\x01\0\0\0\0", b"\0\0\x08\x02\0\0", idx(TRAIN[1])[:-1]],
    ids=["empty", "no header", "floats", "half a header", "a byte short"],
)
def test_a_broken_idx_file_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ValueError, match="file: expected"):
        read_idx(tmp_path / "file")


def test_a_broken_archive_is_one_line_that_says_where(tmp_path: Path) -> None:
    (tmp_path / "mnist.npz").write_bytes(b"no zip")
    with pytest.raises(DatasetMissing, match=str(tmp_path)) as caught:
        dataset("mnist").load((tmp_path,))
    assert "\n" not in str(caught.value)


def test_a_data_set_of_another_size_is_not_taken_for_the_published_one(tmp_path: Path) -> None:
    write_npz(tmp_path)
    with pytest.raises(DatasetMissing, match=r"expected training images of shape \(60000, 28"):
        dataset("mnist").load((tmp_path,))


def cifar_batch(number: int) -> bytes:
    data = np.full((2, 3072), number, np.uint8)
    data[:, :1024] = 255  # the red plane
    return pickle.dumps({b"data": data, b"labels": [number, 9 - number]}, protocol=2)


def write_batches(folder: Path) -> None:
    folder.mkdir(parents=True)
    for number, name in enumerate(BATCH_NAMES):
        (folder / name).write_bytes(cifar_batch(number))


def write_folder(place: Path) -> None:
    write_batches(place / "cifar-10-batches-py")


def write_keras_folder(place: Path) -> None:
    write_batches(place / "cifar-10-batches-py-target" / "cifar-10-batches-py")


def write_tar(place: Path) -> None:
    with tarfile.open(place / "cifar-10-python.tar.gz", "w:gz") as archive:
        for number, name in enumerate(BATCH_NAMES):
            member = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            content = cifar_batch(number)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


@pytest.mark.parametrize("write", [write_folder, write_keras_folder, write_tar])
def test_cifar10_is_read_from_every_form_it_comes_in(
    write: Callable[[Path], None], tmp_path: Path
) -> None:
    write(tmp_path)
    found = read_cifar10(tmp_path)
    assert found is not None
    assert found.train.labels.tolist() == [0, 9, 1, 8, 2, 7, 3, 6, 4, 5]
    assert found.test.labels.tolist() == [5, 4]
    assert found.train.images.shape == (10, 32, 32, 3)
    assert found.test.images[0, 0, 0].tolist() == [255, 5, 5]


def test_the_name_that_old_numpy_wrote_is_still_read() -> None:
    old = cifar_batch(3).replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
    assert b"numpy.core.multiarray" in old
    assert read_batch(io.BytesIO(old)).labels.tolist() == [3, 6]


class Malicious:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


def test_a_pickle_that_runs_code_is_refused_before_it_runs(tmp_path: Path) -> None:
    write_folder(tmp_path)
    trap = tmp_path / "executed"
    evil = pickle.dumps({b"data": Malicious(trap), b"labels": []}, protocol=2)
    (tmp_path / "cifar-10-batches-py" / "data_batch_3").write_bytes(evil)
    with pytest.raises(DatasetMissing, match=r"mkdir is not allowed"):
        dataset("cifar10").load((tmp_path,))
    assert not trap.exists()


@pytest.mark.parametrize(
    "content",
    [b"", b"no pickle", pickle.dumps([1, 2]), pickle.dumps({b"data": b""}), cifar_batch(0)[:-200]],
    ids=["empty", "no pickle", "a list", "no labels", "cut off"],
)
def test_a_broken_batch_is_refused(content: bytes) -> None:
    with pytest.raises((ValueError, EOFError)):
        read_batch(io.BytesIO(content))


def test_a_broken_tar_is_one_line_that_says_where(tmp_path: Path) -> None:
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(gzip.compress(b"no tar"))
    with pytest.raises(DatasetMissing, match=str(tmp_path)):
        dataset("cifar10").load((tmp_path,))
