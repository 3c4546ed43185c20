"""Reads a data set of a user's own, in whatever form it is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from farm.configuration.catalogue import DatasetFacts
from farm.trainers.datasets.found import Found
from farm.trainers.datasets.own.arrays_file import read_npy_pair, read_npz
from farm.trainers.datasets.own.token_file import has_tokens, read_token_files
from farm.trainers.failures import DatasetMissing


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What files may leave open; None: what they have.

    `image_size`: height and width that the images of a folder are resized to. `channels`: theirs.
    `sequence_length`: tokens in a sequence, which a stream of them always leaves open.
    """

    image_size: tuple[int, int] | None = None
    channels: int | None = None
    sequence_length: int | None = None


def wanted_of(facts: DatasetFacts) -> Wanted:
    """Return what files have to become, to be the data set of these facts."""
    match facts.example_shape:
        case (height, width, channels):
            return Wanted(image_size=(height, width), channels=channels)
        case (length,):
            return Wanted(sequence_length=length)
    raise AssertionError(facts.example_shape)


def read_files(path: Path, wanted: Wanted) -> Found | None:
    """Return both splits; None: there is nothing of that name.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no data set.
        DatasetMissing: it has images, and Pillow is not installed.
    """
    if not path.exists():
        return None
    if has_tokens(path):
        if wanted.sequence_length is None:
            raise ValueError(f"{path.name}: expected images, got tokens")
        return read_token_files(path, sequence_length=wanted.sequence_length)
    if path.is_dir():
        if (path / "inputs.npy").exists():
            return read_npy_pair(path)
        try:
            from farm.trainers.datasets.own.image_folder import read_image_folder
        except ModuleNotFoundError as error:
            raise DatasetMissing(
                f"{path}: images need {error.name}: pip install 'benchfarm[images]'"
            ) from error
        return read_image_folder(path, image_size=wanted.image_size, channels=wanted.channels)
    if path.suffix == ".npz" and path.is_file():
        return read_npz(path)
    expected = "a folder of images or arrays, or a file that ends in .npz, .npy or .bin"
    raise ValueError(f"{path.name}: expected {expected}")
