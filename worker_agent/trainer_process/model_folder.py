"""The agent's folder of installed models, and the check whether one may be run."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path

from farm.configuration.model_files import ANY, is_file_name, trouble_of

logger = logging.getLogger(__name__)

# Their names travel with every heartbeat.
MOST_OFFERED = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFolder:
    """`path` None: there is none. `allowed`: names of files, or `*` for all that are there."""

    path: Path | None = None
    allowed: frozenset[str] = frozenset()

    def names(self) -> tuple[str, ...]:
        """Return the models that a rank would get now; of the others the log says why not."""
        if self.path is None or not self.allowed:
            return ()
        trouble = _trouble_with(self.path, is_folder=True)
        if trouble is not None:
            logger.warning("no model of the folder is offered: %s %s", self.path, trouble)
            return ()
        found = sorted(p.name for p in self.path.iterdir() if p.suffix == ".py")
        wanted = found if ANY in self.allowed else sorted(self.allowed)
        offered = [name for name in wanted if self._is_offered(self.path / name)]
        if len(offered) > MOST_OFFERED:
            logger.warning("only %d models of %d are offered", MOST_OFFERED, len(offered))
        return tuple(offered[:MOST_OFFERED])

    def path_of(self, name: str) -> Path | None:
        """Return where a model's file is, if it may be run; the trainer looks at it again."""
        if self.path is None or not is_file_name(name) or _trouble_with(self.path, is_folder=True):
            return None
        return self.path / name if self.allowed & {name, ANY} else None

    @staticmethod
    def _is_offered(path: Path) -> bool:
        trouble = _trouble_with(path) if is_file_name(path.name) else "has no name for a model"
        if trouble is not None:
            logger.warning("model is not offered: %s %s", path, trouble)
        return trouble is None


def _trouble_with(path: Path, *, is_folder: bool = False) -> str | None:
    try:
        held = os.lstat(path)
    except OSError as error:
        return f"cannot be read ({error.strerror or error})"
    return trouble_of(
        mode=held.st_mode, owner=held.st_uid, own_uid=os.geteuid(), is_folder=is_folder
    )
