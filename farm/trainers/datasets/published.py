"""Loads a published data set from a folder, or downloads it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from farm.configuration.catalogue import DatasetFacts
from farm.trainers.contracts import LoadedDataset
from farm.trainers.datasets.download import RemoteFile, fetch
from farm.trainers.datasets.found import Found
from farm.trainers.datasets.places import first_readable
from farm.trainers.failures import DatasetMissing


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
