"""Finds the folders of this machine that may contain data sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from farm.trainers.failures import DatasetMissing

T = TypeVar("T")


def data_places(data_dir: str | None, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """List the folders to search, the one that downloads go to first.

    FARM_DATA_DIR (`data_dir`), then Keras's caches, where other programs have left files.
    """
    places = [Path(data_dir)] if data_dir else []
    if environ.get("KERAS_HOME"):
        places.append(Path(environ["KERAS_HOME"]) / "datasets")
    places.append(Path(environ.get("HOME", "~")).expanduser() / ".keras" / "datasets")
    return tuple(places)


def first_readable(places: Sequence[Path], read: Callable[[Path], T | None]) -> T | None:
    """Return what `read` makes of the first place where it finds something.

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
