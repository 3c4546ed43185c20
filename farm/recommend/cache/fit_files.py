"""Fitted models on disk, for commands: a new process answers without fitting again.

A file's name is the hash of everything that determines the model: the measurements, this program's
code and the versions of its libraries. So a file is never outdated, and is removed only to save
space.

A model is stored as text and arrays, since reading a pickle can run any code. Reading a file
creates objects of this program's classes, and of listed classes of scikit-learn, and sets their
attributes. Nothing is called. Models with objects of other classes, such as a forest of
scikit-learn, are not stored.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import hashlib
import importlib
import importlib.metadata
import json
import logging
import math
import os
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farm.recommend.configuration import Observation
from farm.recommend.contracts import StepTimeModel
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
if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Arrays = list[NDArray[Any]]

PACKAGES = (
    *("farm.recommend.", "farm.configuration.", "farm.measuring."),
    "sklearn.gaussian_process.",
)
_MAX_DEPTH = 200


def digest_of(observations: Sequence[Observation]) -> str:
    """Return the hash of all that a model of these observations follows from."""
    ordered = sorted(observations, key=lambda o: o.measurement_id)
    content = f"{program_digest()}\n{canonical_json(ordered)}"
    return hashlib.sha256(content.encode()).hexdigest()


class FitFiles:
    """A folder of models; the least recently used are deleted first."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, digest: str) -> StepTimeModel | None:
        """Return the model of that digest, or None if there is no readable one."""
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


class NotWritable(TypeError):
    """A value in the model has a class that is not known here."""


def pack(value: object) -> tuple[object, Arrays]:
    """Return the value as JSON values and the arrays that these refer to.

    Raises:
        NotWritable: it holds something of another class.
    """
    packer = _Packer()
    return packer.pack(value, depth=0), packer.arrays


def unpack(packed: object, arrays: Arrays) -> Any:
    """Return what `pack` was given. Raises ValueError where that was never packed."""
    try:
        return _Unpacker(arrays).unpack(packed)
    except (KeyError, IndexError, TypeError, AttributeError, ImportError, RecursionError) as error:
        raise ValueError(f"no packed model: {error!r}") from error


class _Packer:
    """Objects and arrays that occur several times are written once."""

    def __init__(self) -> None:
        self.arrays: Arrays = []
        self._array_of: dict[int, int] = {}
        self._object_of: dict[int, int] = {}
        self._alive: list[object] = []  # or another object might get the id of one that is gone

    def pack(self, value: object, *, depth: int) -> object:
        import numpy as np

        if depth > _MAX_DEPTH:
            raise NotWritable("nested too deeply")
        if value is None or isinstance(value, bool | str) or type(value) is int:
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if isinstance(value, enum.Enum):
            return {"enum": _name(type(value)), "value": value.name}
        if isinstance(value, np.ndarray | np.generic):
            return self._pack_array(value)
        if type(value) in (list, tuple, set, frozenset):
            items = [self.pack(item, depth=depth + 1) for item in value]  # type: ignore[attr-defined] # all four have items
            return items if type(value) is list else {type(value).__name__: items}
        if isinstance(value, Mapping):
            pairs = value.items()
            return {"dict": [[self.pack(x, depth=depth + 1) for x in pair] for pair in pairs]}
        if isinstance(value, type):
            return {"class": _name(value)}
        return self._pack_object(value, depth=depth)

    def _pack_array(self, value: NDArray[Any] | np.generic) -> object:
        import numpy as np

        array = np.asarray(value)
        if array.dtype.hasobject:
            raise NotWritable("an array of objects")
        if not isinstance(value, np.ndarray):
            self.arrays.append(array)
            return {"scalar": len(self.arrays) - 1}
        if id(value) not in self._array_of:
            self._alive.append(value)
            self._array_of[id(value)] = len(self.arrays)
            self.arrays.append(array)
        return {"array": self._array_of[id(value)]}

    def _pack_object(self, value: object, *, depth: int) -> object:
        if id(value) in self._object_of:
            return {"again": self._object_of[id(value)]}
        name = _name(type(value))
        self._alive.append(value)
        self._object_of[id(value)] = len(self._object_of)
        values = [[key, self.pack(x, depth=depth + 1)] for key, x in _attributes(value)]
        return {"object": name, "values": values}


class _Unpacker:
    def __init__(self, arrays: Arrays) -> None:
        self._arrays = arrays
        self._objects: list[object] = []

    def unpack(self, packed: Any) -> Any:
        if isinstance(packed, list):
            return [self.unpack(item) for item in packed]
        if not isinstance(packed, dict):
            return packed
        kind, content = next(iter(packed.items()))
        match kind:
            case "float":
                return float(content)
            case "enum":
                return _class(content)[packed["value"]]  # type: ignore[index] # of an Enum's class
            case "array":
                return self._arrays[content]
            case "scalar":
                return self._arrays[content][()]
            case "tuple" | "set" | "frozenset":
                items = [self.unpack(item) for item in content]
                return {"tuple": tuple, "set": set, "frozenset": frozenset}[kind](items)
            case "dict":
                return {self.unpack(key): self.unpack(value) for key, value in content}
            case "class":
                return _class(content)
            case "again":
                return self._objects[content]
            case "object":
                return self._unpack_object(content, packed["values"])
        raise ValueError(f"no packed model: {kind!r}")

    def _unpack_object(self, name: str, values: list[list[Any]]) -> object:
        made: object = object.__new__(_class(name))
        # Before its values, which may lead back to it.
        self._objects.append(made)
        for key, value in values:
            object.__setattr__(made, key, self.unpack(value))
        return made


def _attributes(value: object) -> list[tuple[str, object]]:
    slots: list[str] = []
    for kind in type(value).__mro__:
        named = vars(kind).get("__slots__", ())
        slots += (named,) if isinstance(named, str) else named
    names = [name for name in slots if name not in ("__dict__", "__weakref__")]
    found = [(name, getattr(value, name)) for name in names if hasattr(value, name)]
    return found + list(getattr(value, "__dict__", {}).items())


def _name(kind: type) -> str:
    if not kind.__module__.startswith(PACKAGES) or "<" in kind.__qualname__:
        raise NotWritable(f"a value of {kind.__module__}.{kind.__qualname__}")
    return f"{kind.__module__}:{kind.__qualname__}"


def _class(name: str) -> type:
    module, _, qualname = name.partition(":")
    if not module.startswith(PACKAGES):
        raise ValueError(f"no class of this program: {name!r}")
    found: Any = importlib.import_module(module)
    for part in qualname.split("."):
        found = getattr(found, part)
    if not isinstance(found, type) or not found.__module__.startswith(PACKAGES):
        raise ValueError(f"no class of this program: {name!r}")
    return found
