"""A user's own data set, identified by the hash of its examples, in any file format.

The hash is of the examples as they are trained on, not of the files: all agents must also agree on
the order of files, their split, and how an image is decoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from farm.configuration.catalogue import DatasetFacts
from farm.configuration.own_data import CONTENT_DIGITS, OwnData, own_data, own_name
from farm.errors import InvalidSpec
from farm.trainers.contracts import LoadedDataset
from farm.trainers.datasets.locations import Found, first_readable
from farm.trainers.failures import DatasetMissing


@dataclass(frozen=True, slots=True)
class OwnDataset:
    """The file or folder that a name asks for, among this machine's data."""

    own: OwnData

    @property
    def facts(self) -> DatasetFacts:
        """The facts in its name."""
        return self.own.facts

    def load(self, places: Sequence[Path]) -> LoadedDataset:
        """Read it from the first of `places` that has it, and check it against its name.

        Raises:
            DatasetMissing: no place has it, it cannot be read, or it is another.
        """
        from farm.trainers.datasets.arrays import sha256_of_splits

        file_name, wanted = self.own.file_name, _wanted_of(self.facts)
        found = first_readable(places, lambda place: _read_files(place / file_name, wanted))
        if found is None:
            searched = ", ".join(map(str, places))
            raise DatasetMissing(
                f"data set {file_name} is in none of {searched}; put it into the first of them"
            )
        sha256 = sha256_of_splits(found.train, found.test)
        return _checked(self.own, found, sha256=sha256)


def examine(
    path: Path, *, image_side: int | None = None, sequence_length: int | None = None
) -> tuple[DatasetFacts, str]:
    """Return the facts of the data set in a file, with the name that sweeps have, and its sha256.

    `image_side`: height and width that the images of a folder are resized to. `sequence_length`:
    the tokens of an example, where it is a stream of tokens.

    Raises:
        InvalidSpec: no data set may have the file's name, or numbers like these; or one of the two
            is lacking or of no use.
        DatasetMissing: it is not there, cannot be read, or is no data set.
    """
    from farm.trainers.datasets.arrays import sha256_of_splits
    from farm.trainers.datasets.own.token_file import has_tokens

    is_of_tokens = first_readable([path], has_tokens)
    if is_of_tokens and sequence_length is None:
        raise InvalidSpec("--sequence-length", None, "how many tokens a sequence has")
    if not is_of_tokens and sequence_length is not None:
        raise InvalidSpec("--sequence-length", sequence_length, "no value for data without tokens")
    wanted = _Wanted(
        image_size=None if image_side is None else (image_side, image_side),
        sequence_length=sequence_length,
    )
    found = first_readable([path], lambda place: _read_files(place, wanted))
    if found is None:
        raise DatasetMissing(f"{path}: there is no such file")
    if image_side is not None and found.train.inputs.shape[1:3] != wanted.image_size:
        raise InvalidSpec("--image-side", image_side, "a folder of images, or no value")
    sha256 = sha256_of_splits(found.train, found.test)
    splits = (found.train, found.test)
    highest = max(int(split.labels.max()) for split in splits)
    if is_of_tokens:  # the first one is no label
        highest = max(highest, *(int(split.inputs.max()) for split in splits))
    if highest == 0:
        raise DatasetMissing(f"{path}: expected at least two different labels, got 0 alone")
    name = own_name(
        path.name,
        sha256=sha256,
        example_shape=found.train.inputs.shape[1:],
        class_count=highest + 1,
        train_examples_count=len(found.train.labels),
        test_examples_count=len(found.test.labels),
    )
    own = own_data(name)
    assert own is not None
    _checked(own, found, sha256=sha256)
    return own.facts, sha256


def _checked(own: OwnData, found: Found, *, sha256: str) -> LoadedDataset:
    """Return what was found. Raises DatasetMissing: it is not what the name says."""
    from farm.trainers.datasets.arrays import loaded

    [path] = found.paths
    data = loaded(own.facts, found.train, found.test, origin=str(path), sha256=sha256)
    if not sha256.startswith(own.content):
        raise DatasetMissing(
            f"{path}: expected content {own.content}, got {sha256[:CONTENT_DIGITS]}; copy the same "
            "files to every agent, or submit the name that `farm data` prints of these"
        )
    return data


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """What files may leave open; None: what they have.

    `image_size`: height and width that the images of a folder are resized to. `channels`: theirs.
    `sequence_length`: tokens in a sequence, which a stream of them always leaves open.
    """

    image_size: tuple[int, int] | None = None
    channels: int | None = None
    sequence_length: int | None = None


def _wanted_of(facts: DatasetFacts) -> _Wanted:
    """Return what files have to become, to be the data set of these facts."""
    match facts.example_shape:
        case (height, width, channels):
            return _Wanted(image_size=(height, width), channels=channels)
        case (length,):
            return _Wanted(sequence_length=length)
    raise AssertionError(facts.example_shape)


def _read_files(path: Path, wanted: _Wanted) -> Found | None:
    """Return both splits; None: there is nothing of that name.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no data set.
        DatasetMissing: it has images, and Pillow is not installed.
    """
    from farm.trainers.datasets.own.arrays_file import read_npy_pair, read_npz
    from farm.trainers.datasets.own.token_file import has_tokens, read_token_files

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
