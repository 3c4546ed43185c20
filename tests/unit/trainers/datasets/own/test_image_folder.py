"""Folders as data sets of a user's own: of images, and of two arrays."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from farm.registry import dataset
from farm.trainers.contracts import LoadedDataset
from farm.trainers.datasets.own.own_dataset import examine
from farm.trainers.failures import DatasetMissing
from tests.own_data_files import images, name_of, write_image_folder, write_npy_pair


def loaded(path: Path, **options: Any) -> LoadedDataset:
    """What an agent reads of it, by the name that `farm data` prints."""
    facts, _ = examine(path, **options)
    return dataset(facts.name).load((path.parent,))


def test_each_folder_is_a_class_and_every_tenth_of_its_images_a_test_image(tmp_path: Path) -> None:
    data = loaded(write_image_folder(tmp_path / "mine"))
    inputs, labels = images(60)
    order = np.argsort(labels, kind="stable")
    is_test = np.arange(60) % 15 == 9  # each class has 15
    for split, places in ((data.train, order[~is_test]), (data.test, order[is_test])):
        assert np.array_equal(split.inputs, inputs[places])
        assert split.labels.tolist() == labels[places].tolist()


@pytest.mark.parametrize("tested", ["test", "val"])
def test_splits_may_have_folders_of_their_own(tested: str, tmp_path: Path) -> None:
    data = loaded(write_image_folder(tmp_path / "mine", splits=("train", tested)))
    assert len(data.train.labels) == len(data.test.labels) == 60
    assert np.array_equal(data.train.inputs, data.test.inputs)


def test_grey_images_have_one_channel_if_all_are_grey(tmp_path: Path) -> None:
    folder = write_image_folder(tmp_path / "mine", channels=1)
    assert loaded(folder).train.inputs.shape == (56, 8, 8, 1)
    Image.new("RGB", (8, 8), (255, 0, 0)).save(folder / "a" / "99.png")
    assert loaded(folder).train.inputs.shape == (57, 8, 8, 3)


def test_images_are_resized_where_that_is_asked_for(tmp_path: Path) -> None:
    folder = write_image_folder(tmp_path / "mine")
    Image.new("RGB", (40, 20), (255, 0, 0)).save(folder / "a" / "99.png")
    with pytest.raises(
        DatasetMissing, match=r"'a/99\.png': expected 8x8 pixels, as 'a/00\.png' has"
    ):
        examine(folder)
    data = loaded(folder, image_side=5)
    assert data.train.inputs.shape == (57, 5, 5, 3)
    assert (data.train.inputs[data.train.labels == 0][-1] == (255, 0, 0)).all()


def test_files_that_are_no_images_by_their_names_are_left_out(tmp_path: Path) -> None:
    folder = write_image_folder(tmp_path / "mine")
    name = name_of(folder)
    for path in ("README.txt", "a/README.txt", "a/.hidden.png"):
        (folder / path).write_text("no image")
    (folder / ".thumbnails").mkdir()
    assert name_of(folder) == name


def test_an_image_that_is_exchanged_is_another_content(tmp_path: Path) -> None:
    folder = write_image_folder(tmp_path / "mine")
    name = name_of(folder)
    (folder / "b" / "01.png").rename(folder / "b" / "moved.png")  # to the end of its class
    with pytest.raises(DatasetMissing, match="mine: expected content"):
        dataset(name).load((tmp_path,))


def test_two_arrays_are_split_as_images_are(tmp_path: Path) -> None:
    data = loaded(write_npy_pair(tmp_path / "mine"))
    inputs, labels = images(60)
    assert np.array_equal(data.test.inputs, inputs[9::10])
    assert data.test.labels.tolist() == labels[9::10].tolist()
    assert len(data.train.labels) == 54


def having(**arrays: Any) -> Callable[[Path], Any]:
    return lambda path: write_npy_pair(path, **arrays)


def with_image(write: Callable[[Path], Any]) -> Callable[[Path], Any]:
    """A good folder in which one image is another file."""

    def write_folder(path: Path) -> None:
        write_image_folder(path)
        (path / "a" / "00.png").unlink()
        write(path / "a" / "00.png")

    return write_folder


def cut_off(path: Path) -> None:
    Image.fromarray(images(1)[0][0]).save(path)
    path.write_bytes(path.read_bytes()[:-100])


def write_tiff(path: Path) -> None:
    Image.fromarray(images(1)[0][0]).save(path, "TIFF")


def with_few_images(path: Path) -> None:
    write_image_folder(path)
    for image in sorted((path / "b").iterdir())[9:]:
        image.unlink()


def without_test(path: Path) -> None:
    write_image_folder(path, splits=("train",))
    (path / "test" / "a").mkdir(parents=True)
    (path / "test" / "b").mkdir()


def with_another_class(path: Path) -> None:
    write_image_folder(path, splits=("train", "test"))
    (path / "test" / "e").mkdir()


IMAGES, LABELS = images(60)


@pytest.mark.parametrize(
    ("write", "expected"),
    [
        (lambda path: path.mkdir(), "expected a folder of images for each of two classes or more"),
        (with_few_images, "'b': expected at least 10 images in a class, .*, got 9"),
        (without_test, "expected images in both splits"),
        (with_another_class, "test/'e': expected a class that train has"),
        (with_image(lambda path: path.write_text("none")), r"'a/00\.png': expected an image that"),
        (with_image(cut_off), r"'a/00\.png': expected an image that"),
        (with_image(write_tiff), r"'a/00\.png': expected an image that"),
        (with_image(lambda path: path.mkdir()), r"'a/00\.png': expected an ordinary file"),
        (with_image(os.mkfifo), r"'a/00\.png': expected an ordinary file"),
        (with_image(lambda path: path.symlink_to("gone")), r"'a/00\.png': expected an ordinary"),
        (with_image(lambda path: Image.new("I;16", (8, 8)).save(path)), "8 bits .* mode I;16"),
        (with_image(lambda path: Image.new("1", (10_001, 8)).save(path)), "10000 pixels a side"),
        (with_image(lambda path: Image.new("1", (9_990, 9_990)).save(path)), "that can be decoded"),
        (having(inputs=IMAGES / 255), r"inputs\.npy: expected whole numbers, got float64"),
        (having(inputs=IMAGES.astype(object)), r"inputs\.npy: expected whole numbers, got object"),
        (having(labels=LABELS[:-1]), r"labels\.npy: expected 60 labels"),
        (having(inputs=IMAGES[:9], labels=LABELS[:9]), "expected at least 10 examples, got 9"),
    ],
)
def test_a_folder_that_is_no_data_set_is_refused_in_one_line(
    write: Callable[[Path], Any], expected: str, tmp_path: Path
) -> None:
    write(tmp_path / "mine")
    with pytest.raises(DatasetMissing, match=expected) as refused:
        examine(tmp_path / "mine")
    assert "\n" not in str(refused.value)
    assert str(tmp_path) in str(refused.value)


def test_without_pillow_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_image_folder(tmp_path / "mine")
    monkeypatch.delitem(sys.modules, "farm.trainers.datasets.own.image_folder", raising=False)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(DatasetMissing, match=r"images need PIL: pip install 'benchfarm\[images\]'"):
        examine(folder)
