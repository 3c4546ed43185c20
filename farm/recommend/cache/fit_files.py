"""Fitted models on disk, for commands: a new process answers without fitting again.

A file's name is the hash of all that the model follows from: the measurements, this program's code
and the versions of its libraries. So none is ever wrong, and none has to be removed but for room.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import logging
import os
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from farm.recommend.cache.model_state import NotWritable, pack, unpack
from farm.recommend.configuration import Observation
from farm.recommend.prediction import StepTimeModel
from farm.values.codec import canonical_json

logger = logging.getLogger(__name__)

MAX_FILES = 24
_LIBRARIES = ("numpy", "scipy", "scikit-learn")
_STATE = "state"
# What reading raises where bytes of an archive were changed: beside errors of its own, zipfile
# asks for passwords and for ways of compression that it does not have.
_UNREADABLE = (
    *(OSError, ValueError, KeyError, EOFError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error, struct.error),
)


def digest_of(observations: Sequence[Observation]) -> str:
    """Return the hash of all that a model of these observations follows from."""
    ordered = sorted(observations, key=lambda o: o.measurement_id)
    content = f"{program_digest()}\n{canonical_json(ordered)}"
    return hashlib.sha256(content.encode()).hexdigest()


class FitFiles:
    """A folder of models, the least recently used of which go first."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, digest: str) -> StepTimeModel | None:
        """Return the model of that digest, or None where there is none that can be read."""
        path = self._path(digest)
        try:
            if not path.exists():
                return None
            import numpy as np

            # Opened here, since numpy leaves a file open that is no archive.
            with path.open("rb") as content, np.load(content, allow_pickle=False) as file:
                packed = json.loads(file[_STATE].tobytes())
                arrays = [file[f"a{n}"] for n in range(len(file.files) - 1)]
            model: StepTimeModel = unpack(packed, arrays)
        except _UNREADABLE as error:
            logger.info("a fitted model could not be read: %s", error)
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return model

    def save(self, digest: str, model: StepTimeModel) -> bool:
        """Keep a model; return whether it could be. A disk that is full costs time, no answer."""
        import numpy as np

        try:
            packed, arrays = pack(model)
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            state = np.frombuffer(json.dumps(packed).encode(), dtype=np.uint8)
            # Files made so are readable by their owner alone; the measurements may be private.
            handle, name = tempfile.mkstemp(dir=self._folder, suffix=".part")
            try:
                with os.fdopen(handle, "wb") as file:
                    named = {f"a{n}": array for n, array in enumerate(arrays)}
                    np.savez(file, **{_STATE: state}, **named)  # type: ignore[arg-type] # its stub takes names for flags
                Path(name).replace(self._path(digest))
            except BaseException:
                Path(name).unlink(missing_ok=True)
                raise
            self._make_room()
        except NotWritable as error:
            logger.info("a fitted model cannot be kept: %s", error)
            return False
        except OSError as error:
            logger.info("a fitted model could not be written: %s", error)
            return False
        return True

    def _path(self, digest: str) -> Path:
        return self._folder / f"{digest}.npz"

    def _make_room(self) -> None:
        by_use = sorted(self._folder.glob("*.npz"), key=lambda path: path.stat().st_mtime)
        for path in by_use[:-MAX_FILES]:
            path.unlink(missing_ok=True)


@functools.cache
def program_digest() -> str:
    """Return a hash that changes with the code of the recommender and the libraries below it."""
    code = hashlib.sha256()
    for name in _LIBRARIES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            code.update(f"{name} {importlib.metadata.version(name)}\n".encode())
    for path in program_files():
        code.update(path.read_bytes())
    return code.hexdigest()


def program_files() -> list[Path]:
    """Return the code that a model may follow from: all of the recommender."""
    return sorted(Path(str(files("farm.recommend"))).rglob("*.py"))
