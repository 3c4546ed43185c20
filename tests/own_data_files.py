"""Small data sets of a user's own, written as users write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from farm.trainers.datasets.own.own_dataset import examine


def images(
    count: int, *, side: int = 8, channels: int = 3, class_count: int = 4
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return images that are the brighter, the higher their class, and their labels in turn."""
    labels = np.arange(count) % class_count
    noise = np.random.default_rng(count).integers(0, 60, (count, side, side, channels))
    return (noise + 60 * labels[:, None, None, None]).astype(np.uint8), labels


def write_npz(path: Path, **arrays: Any) -> Path:
    """Write 60 training and 12 test images, with other arrays in the place of some."""
    (x_train, y_train), (x_test, y_test) = images(60), images(12)
    usual = {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}
    np.savez_compressed(path, allow_pickle=True, **{**usual, **arrays})
    return path


def write_npy_pair(folder: Path, **arrays: Any) -> Path:
    """Write 60 images, with other arrays in the place of some."""
    folder.mkdir()
    inputs, labels = images(60)
    for name, array in {"inputs": inputs, "labels": labels, **arrays}.items():
        np.save(folder / f"{name}.npy", array, allow_pickle=True)
    return folder


def write_image_folder(
    folder: Path, *, splits: tuple[str, ...] = (".",), channels: int = 3, suffix: str = ".png"
) -> Path:
    """Write 60 images of four classes in each split."""
    inputs, labels = images(60, channels=channels)
    for split in splits:
        for number, (image, label) in enumerate(zip(inputs, labels, strict=True)):
            path = folder / split / "abcd"[label] / f"{number:02}{suffix}"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image[..., 0] if channels == 1 else image).save(path)
    return folder


def tokens(count: int, *, token_count: int = 16) -> NDArray[np.int64]:
    """Return a stream in which each token says what follows it."""
    return np.arange(count) * 3 % token_count


def write_token_file(path: Path) -> Path:
    """Write a stream as nanoGPT does."""
    tokens(1_601).astype("<u2").tofile(path)
    return path


def name_of(path: Path, *, sequence_length: int | None = None) -> str:
    """Return the name that sweeps have for the data set in a file."""
    facts, _ = examine(path, sequence_length=sequence_length)
    return facts.name
