"""Reads a folder of images, one folder for each class.

The folder contains the folders of the classes, or the folders `train` and `test` (or `val`) with
one folder for each class. Without `train` and `test`, every tenth image of a class, by name, is a
test image. Classes are numbered in the order of their names. Hidden files and files without an
image's suffix are ignored.
"""

from __future__ import annotations

import itertools
import math
import struct
import warnings
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from farm.configuration.own_data import MOST_PIXELS_OF_A_SIDE
from farm.trainers.contracts import Examples
from farm.trainers.datasets.arrays import check_memory
from farm.trainers.datasets.locations import Found
from farm.trainers.datasets.own.arrays_file import TEST_EVERY

_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp"})
# Pillow knows formats for which it starts other programs.
_FORMATS = ("JPEG", "PNG", "BMP", "WEBP")
_GREY = frozenset({"1", "L"})
_COLOUR = frozenset({"LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr"})
_MODES = {1: "L", 3: "RGB"}
# What Pillow raises for broken files, which may have anything in their headers.
_BROKEN = (
    *(OSError, EOFError, SyntaxError, ValueError, TypeError, IndexError, KeyError, OverflowError),
    *(NotImplementedError, struct.error, zlib.error),
    *(Image.DecompressionBombError, Image.DecompressionBombWarning),
)


def read_image_folder(
    folder: Path, *, image_size: tuple[int, int] | None, channels: int | None
) -> Found:
    """Read the images of both splits.

    `image_size`: height and width that images are brought to; None: they must have the same.
    `channels`: None: 1 if all images are grey, else 3.

    Raises:
        OSError: a file cannot be read.
        ValueError: it is no such folder; or an image is broken, of another size, or has more than 8
            bits in a channel.
    """
    train, test = _splits(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        if image_size is None or channels is None:
            paths = [path for path, _ in itertools.chain(train, test)]
            image_size, channels = _common_shape(folder, paths, image_size=image_size)
        shape = (*image_size, channels)
        check_memory((len(train) + len(test)) * math.prod(shape), folder.name)
        return Found(
            train=_examples(folder, train, shape=shape),
            test=_examples(folder, test, shape=shape),
            paths=(folder,),
        )


def _splits(folder: Path) -> tuple[list[tuple[Path, int]], list[tuple[Path, int]]]:
    """Return each image of both splits with the number of its class."""
    tested = next((name for name in ("test", "val") if (folder / name).is_dir()), None)
    if tested is None or not (folder / "train").is_dir():
        names = _class_names(folder)
        images = [list(_images(folder / name)) for name in names]
        for name, of_class in zip(names, images, strict=True):
            if len(of_class) < TEST_EVERY:
                expected = f"at least {TEST_EVERY} images in a class, or folders train and test"
                raise ValueError(f"{name!r}: expected {expected}, got {len(of_class)}")
        numbered = [
            (path, number, i % TEST_EVERY == TEST_EVERY - 1)
            for number, of_class in enumerate(images)
            for i, path in enumerate(of_class)
        ]
        return (
            [(path, number) for path, number, is_test in numbered if not is_test],
            [(path, number) for path, number, is_test in numbered if is_test],
        )
    names = _class_names(folder / "train")
    for name in _class_names(folder / tested):
        if name not in names:
            raise ValueError(f"{tested}/{name!r}: expected a class that train has, too")
    train, test = (
        [
            (path, number)
            for number, name in enumerate(names)
            for path in _images(folder / split / name)
        ]
        for split in ("train", tested)
    )
    return train, test


def _class_names(folder: Path) -> list[str]:
    names = sorted(p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    if len(names) < 2:
        raise ValueError(
            f"{folder.name!r}: expected a folder of images for each of two classes or more, "
            f"got {len(names)}"
        )
    return names


def _images(folder: Path) -> Iterator[Path]:
    if not folder.is_dir():
        return
    for path in sorted(folder.iterdir()):
        if path.suffix.lower() in _SUFFIXES and not path.name.startswith("."):
            yield path


def _common_shape(
    folder: Path, paths: Sequence[Path], *, image_size: tuple[int, int] | None
) -> tuple[tuple[int, int], int]:
    """Return height and width of all images, and the number of their channels."""
    are_grey = True
    first: Path | None = None
    for path in paths:
        with _opened(folder, path) as image:
            are_grey &= image.mode in _GREY
            size = (image.height, image.width)
        if image_size is None:
            first, image_size = path, size
        elif first is not None and size != image_size:
            raise ValueError(
                f"{_shown(folder, path)}: expected {image_size[0]}x{image_size[1]} pixels, as "
                f"{_shown(folder, first)} has, got {size[0]}x{size[1]}; --image-side resizes them"
            )
    if image_size is None:
        raise ValueError(f"expected images ({', '.join(sorted(_SUFFIXES))}), got none")
    return image_size, 1 if are_grey else 3


def _examples(
    folder: Path, images: Sequence[tuple[Path, int]], *, shape: tuple[int, int, int]
) -> Examples:
    if not images:
        raise ValueError("expected images in both splits, got none in one of them")
    inputs = np.empty((len(images), *shape), np.uint8)
    for place, (path, _) in enumerate(images):
        inputs[place] = _decoded(folder, path, shape=shape)
    labels = np.fromiter((number for _, number in images), np.int64, len(images))
    paths = [path for path, _ in images]
    return Examples(
        inputs=inputs,
        labels=labels,
        decode=lambda place: _decoded(folder, paths[place], shape=shape),
    )


def _decoded(folder: Path, path: Path, *, shape: tuple[int, int, int]) -> NDArray[np.uint8]:
    height, width, channels = shape
    if channels not in _MODES:
        raise ValueError(f"expected 1 or 3 channels of images in a folder, got {channels}")
    with _opened(folder, path) as image:
        try:
            found = image.convert(_MODES[channels])
            if found.size != (width, height):
                found = found.resize((width, height), Image.Resampling.BILINEAR)
        except _BROKEN as error:
            raise _broken(folder, path, error) from error
    return np.asarray(found, np.uint8).reshape(shape)


def _opened(folder: Path, path: Path) -> Image.Image:
    if not path.is_file():
        raise ValueError(f"{_shown(folder, path)}: expected an ordinary file")
    try:
        image = Image.open(path, formats=_FORMATS)
    except PermissionError:
        raise
    except _BROKEN as error:
        raise _broken(folder, path, error) from error
    if image.mode not in _GREY | _COLOUR:
        image.close()
        expected = "an image with 8 bits in a channel"
        raise ValueError(f"{_shown(folder, path)}: expected {expected}, got mode {image.mode}")
    if max(image.size) > MOST_PIXELS_OF_A_SIDE:
        image.close()
        expected = f"an image of at most {MOST_PIXELS_OF_A_SIDE} pixels a side"
        raise ValueError(f"{_shown(folder, path)}: expected {expected}, got {max(image.size)}")
    return image


def _broken(folder: Path, path: Path, error: Exception) -> ValueError:
    why = " ".join(str(error).split())
    return ValueError(f"{_shown(folder, path)}: expected an image that can be decoded ({why})")


def _shown(folder: Path, path: Path) -> str:
    # A name may have line breaks, or be no text at all.
    return repr(str(path.relative_to(folder)))
