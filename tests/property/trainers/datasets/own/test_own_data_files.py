"""Whatever a file of a data set holds, it is read, or refused in one line; nothing hangs."""

from __future__ import annotations

import io
import tempfile
import zipfile
from pathlib import Path

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image

from farm.registry import dataset
from farm.trainers.datasets.own.own_dataset import examine
from farm.trainers.failures import DatasetMissing

# What it takes is the disk's affair; pytest ends what hangs.
FRUGAL = settings(max_examples=150, deadline=None)


def npy(values: list[object], dtype: str) -> bytes:
    file = io.BytesIO()
    np.save(file, np.array(values, dtype))
    return file.getvalue()


IMAGES = npy([[[1, 2], [3, 4]], [[5, 6], [7, 8]]], "u1")
LABELS = npy([0, 1], "i8")
NAMES = ("x_train.npy", "y_train.npy", "x_test.npy", "y_test.npy")


def changed(content: bytes) -> st.SearchStrategy[bytes]:
    """The content with some bytes in the place of others, and cut off somewhere."""
    places = st.lists(st.tuples(st.integers(0, len(content) - 1), st.integers(0, 255)), max_size=4)

    def change(found: tuple[list[tuple[int, int]], int]) -> bytes:
        array = bytearray(content)
        for place, byte in found[0]:
            array[place] = byte
        return bytes(array[: found[1]])

    return st.tuples(places, st.integers(0, len(content)) | st.just(len(content))).map(change)


def header(text: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode("latin1")


def npz(*members: bytes, compression: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, content in zip(NAMES, members, strict=True):
            archive.writestr(name, content)
    return file.getvalue()


GOOD = npz(IMAGES, LABELS, IMAGES, LABELS)


def check(path: Path, **options: int) -> None:
    """What is read has the facts of its name; what is refused has a reason of one line."""
    try:
        facts, _ = examine(path, **options)
    except DatasetMissing as refused:
        message = str(refused)
    else:
        message = ""
        data = dataset(facts.name).load((path.parent,))
        assert data.train.inputs.shape == (facts.train_examples_count, *facts.example_shape)
    assert "\n" not in message


@FRUGAL
@given(
    changed(GOOD)
    | changed(npz(IMAGES, LABELS, IMAGES, LABELS, compression=zipfile.ZIP_DEFLATED))
    | st.builds(npz, changed(IMAGES), changed(LABELS), st.just(IMAGES), st.just(LABELS))
    | st.binary(max_size=60)
)
@example(GOOD)
@example(
    npz(
        header("{'descr': '|u1', 'fortran_order': False, 'shape': (-1, -1, 1)}") + b"0",
        LABELS,
        IMAGES,
        LABELS,
    )
)
@example(npz(header("(" * 5000), LABELS, IMAGES, LABELS))
@example(npz(header("[" * 200 + "\\"), LABELS, IMAGES, LABELS))
@example(npz(header("{'descr': 'O', 'fortran_order': False, 'shape': ()}"), LABELS, IMAGES, LABELS))
@example(
    npz(
        header("{'descr': '|u1', 'fortran_order': False, 'shape': (9" + "9" * 4000 + ",)}"),
        LABELS,
        IMAGES,
        LABELS,
    )
)
@example(npz(b"\x93NUMPY\x03\x00" + IMAGES[8:], LABELS, IMAGES, LABELS))
# What Python's own parser has no stack for, and extents that no array has.
@example(npz(header("-" * 9000 + "1"), LABELS, IMAGES, LABELS))
@example(
    npz(
        header(f"{{'descr': '|u1', 'fortran_order': False, 'shape': (0, {10**30})}}"),
        LABELS,
        IMAGES,
        LABELS,
    )
)
@example(
    npz(
        header("{'descr': '|u1', 'fortran_order': False, 'shape': (True,)}") + b"0",
        LABELS,
        IMAGES,
        LABELS,
    )
)
def test_any_npz_file_is_a_data_set_or_is_refused(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "mine.npz")
        path.write_bytes(content)
        check(path)


def encoded(form: str, mode: str, **options: int) -> bytes:
    file = io.BytesIO()
    Image.new(mode, (8, 8), 9).save(file, form, **options)
    return file.getvalue()


PNG = encoded("PNG", "L")


@FRUGAL
@given(
    changed(PNG)
    | changed(encoded("JPEG", "RGB"))
    | changed(encoded("WEBP", "RGB"))
    | changed(encoded("BMP", "P"))
    | st.binary(max_size=60)
)
@example(encoded("GIF", "L"))
@example(encoded("TIFF", "L"))
def test_any_image_is_part_of_a_data_set_or_is_refused(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as place:
        for split in ("train", "test"):
            for label in ("a", "b"):
                path = Path(place, "mine", split, label, "1.png")
                path.parent.mkdir(parents=True)
                path.write_bytes(PNG)
        Path(place, "mine", "train", "a", "0.png").write_bytes(content)
        check(Path(place, "mine"))


@FRUGAL
@given(changed(npy([[[1, 2]]] * 20, "u1")), changed(npy([0, 1] * 10, "i4")))
def test_any_two_arrays_are_a_data_set_or_are_refused(inputs: bytes, labels: bytes) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "mine")
        folder.mkdir()
        (folder / "inputs.npy").write_bytes(inputs)
        (folder / "labels.npy").write_bytes(labels)
        check(folder)


@FRUGAL
@given(
    st.sampled_from(["mine.npy", "mine.bin"]), changed(npy([0, 1] * 10, "i4")), st.integers(1, 9)
)
def test_any_stream_of_tokens_is_a_data_set_or_is_refused(
    name: str, content: bytes, sequence_length: int
) -> None:
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, name)
        path.write_bytes(content)
        check(path, sequence_length=sequence_length)
