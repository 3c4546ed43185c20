"""Finds data sets in the folders of this machine, and downloads published ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from farm.configuration.catalogue import DatasetFacts
from farm.trainers.contracts import Examples, LoadedDataset
from farm.trainers.datasets.download import RemoteFile, fetch
from farm.trainers.failures import DatasetMissing

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Both splits, and the files they were read from, in the order they are hashed."""

    train: Examples
    test: Examples
    paths: tuple[Path, ...]


def data_places(data_dir: str | None, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """List the folders to search; downloads go to the first one.

    FARM_DATA_DIR (`data_dir`), then Keras's caches, where other programs have left files.
    """
    places = [Path(data_dir)] if data_dir else []
    if environ.get("KERAS_HOME"):
        places.append(Path(environ["KERAS_HOME"]) / "datasets")
    places.append(Path(environ.get("HOME", "~")).expanduser() / ".keras" / "datasets")
    return tuple(places)


def first_readable(places: Sequence[Path], read: Callable[[Path], T | None]) -> T | None:
    """Return the result of `read` for the first place that has the data set.

    A broken file is an error and not a reason to look further: a silent second choice would
    measure something else than the user sees in the first place.

    Raises:
        DatasetMissing: a place has files that cannot be read.
    """
    for place in places:
        try:
            found = read(place)
        except PermissionError as error:
            raise DatasetMissing(
                f"{error.filename or place}: the trainer's user may not read it; let others read "
                f"the files and enter the folders (chmod -R o+rX {place})"
            ) from error
        except (OSError, ValueError, KeyError, EOFError) as error:
            raise DatasetMissing(
                f"{place}: the files of a data set cannot be read ({error}); replace or remove them"
            ) from error
        if found is not None:
            return found
    return None


def load_published(
    facts: DatasetFacts,
    places: Sequence[Path],
    *,
    archive: RemoteFile,
    read: Callable[[Path], Found | None],
) -> LoadedDataset:
    """Read the first place that has the files, or download them into the first place.

    Raises:
        DatasetMissing: no place has them, and they cannot be had from the internet.
    """
    from farm.trainers.datasets.arrays import loaded, sha256_of_files

    found = first_readable(places, read)
    if found is None:
        try:
            fetch(archive, places[0])
        except DatasetMissing as error:
            searched = ", ".join(map(str, places))
            raise DatasetMissing(
                f"data set {facts.name} is in none of {searched}; {error}"
            ) from error
        found = first_readable(places[:1], read)
        assert found is not None
    return loaded(
        facts,
        found.train,
        found.test,
        origin=str(found.paths[0]),
        sha256=sha256_of_files(found.paths),
    )
