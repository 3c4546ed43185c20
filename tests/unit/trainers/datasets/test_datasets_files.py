"""The readers of published files, on small files of the same forms."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
        assert np.array_equal(split.inputs[..., 0], images)
        assert split.inputs.shape[1:] == (28, 28, 1)
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
    assert found.train.inputs.shape == (10, 32, 32, 3)
    assert found.test.inputs[0, 0, 0].tolist() == [255, 5, 5]


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


class Forged:
    """Pickled as a call, with a state for what it returns."""

    def __init__(self, *reduced: object) -> None:
        self.reduced = reduced

    def __reduce__(self) -> tuple[Any, ...]:
        return self.reduced


def forged_array(kind: object) -> Forged:
    """Eight bytes that NumPy would take for a pointer if `kind` talks it into that."""
    make = np.array(0).__reduce__()[0]  # _reconstruct
    return Forged(make, (np.ndarray, (0,), b"b"), (1, (1,), kind, False, b"A" * 8))


@pytest.mark.parametrize(
    "kind",
    [
        Forged(np.dtype, ("O", False, True), (3, "|", None, None, None, -1, -1, 0)),
        Forged(
            np.dtype,
            ("V8", False, True),
            (3, "|", None, ("f",), {"f": (np.dtype("O"), 0)}, 8, 1, 0),
        ),
    ],
    ids=["objects that say they are none", "a field of objects"],
)
def test_a_pickle_cannot_pass_bytes_off_as_pointers(kind: Forged) -> None:
    evil = pickle.dumps({b"data": forged_array(kind), b"labels": [1]}, protocol=2)
    with pytest.raises(ValueError, match="expected an array of bytes"):
        read_batch(io.BytesIO(evil))


def endless_labels() -> bytes:
    labels: list[object] = [1, 1]
    for _ in range(60):
        labels = [labels, labels]
    return pickle.dumps({b"data": np.zeros((2, 3072), np.uint8), b"labels": labels}, protocol=2)


def test_labels_that_unfold_without_end_are_refused() -> None:
    with pytest.raises(ValueError, match="labels"):
        read_batch(io.BytesIO(endless_labels()))


def test_a_pickle_that_asks_for_more_than_all_memory_is_refused() -> None:
    with pytest.raises(ValueError, match="expected a pickled"):
        read_batch(io.BytesIO(b"\x80\x04\x8e" + struct.pack("<Q", 1 << 50) + b"x"))


def test_a_link_in_the_tar_that_leads_to_itself_is_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "cifar-10-python.tar.gz", "w:gz") as archive:
        member = tarfile.TarInfo("cifar-10-batches-py/data_batch_1")
        member.type, member.linkname = tarfile.SYMTYPE, "data_batch_1"
        archive.addfile(member)
    with pytest.raises(DatasetMissing, match="no plain file"):
        dataset("cifar10").load((tmp_path,))


def write_gzipped_zeros(place: Path) -> None:
    write_idx(place, pack=gzip.compress, suffix=".gz")
    with gzip.open(place / "train-images-idx3-ubyte.gz", "wb", compresslevel=1) as file:
        for _ in range(65):
            file.write(bytes(1 << 20))


def write_npz_of_zeros(place: Path) -> None:
    with zipfile.ZipFile(place / "mnist.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x_train.npy", bytes(65 << 20))


def write_npz_with_an_absurd_header(place: Path) -> None:
    with (
        zipfile.ZipFile(place / "mnist.npz", "w") as archive,
        archive.open("x_train.npy", "w") as file,
    ):
        header = {"descr": "|u1", "fortran_order": False, "shape": (1 << 50,)}
        np.lib.format.write_array_header_1_0(file, header)


def write_one_array_as_npz(place: Path) -> None:
    with (place / "mnist.npz").open("wb") as file:
        np.save(file, np.zeros(3))


@pytest.mark.parametrize(
    "write",
    [
        *(write_gzipped_zeros, write_npz_of_zeros),
        *(write_npz_with_an_absurd_header, write_one_array_as_npz),
    ],
)
def test_a_file_that_would_fill_the_memory_or_is_another_is_refused(
    write: Callable[[Path], None], tmp_path: Path
) -> None:
    write(tmp_path)
    with pytest.raises(DatasetMissing, match=str(tmp_path)):
        dataset("mnist").load((tmp_path,))


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
