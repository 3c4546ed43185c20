"""Main module of processes that a model's file starts with multiprocessing.

A process started by `spawn` or `forkserver` imports the main module of its parent again, and finds
functions and classes by their module's name. No file has the name of a model file's module. So the
trainer makes this module its main module, and an environment variable names the file. Only a
process that unpickles an object of the model file then imports the file.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from farm.trainers.model_files.model_file import ModelFile, read_model_file

_VARIABLE = "_BENCHFARM_MODEL_FILE"


class _ModelFileFinder:
    """Finds the module of one model file."""

    def __init__(self, model: ModelFile) -> None:
        self._model = model

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of the model file's module, and None for every other name."""
        del path, target
        return self._model.module_spec() if name == self._model.module_name else None


def serve_spawned(model: ModelFile) -> None:
    """Let processes that the file starts from now on import it. Changes the main module's spec."""
    os.environ[_VARIABLE] = json.dumps([model.file_name, str(model.path), model.sha256])
    sys.modules["__main__"].__spec__ = importlib.util.find_spec(__name__)


def _install() -> None:
    name, path, sha256 = json.loads(os.environ[_VARIABLE])
    model = read_model_file(name, Path(path))
    if model.sha256 != sha256:
        raise RuntimeError(f"{path}: expected the content that the trainer has read, got another")
    sys.meta_path.append(_ModelFileFinder(model))


if __name__ == "__mp_main__":
    _install()
