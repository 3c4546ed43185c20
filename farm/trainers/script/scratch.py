"""An empty folder for a script to run in, removed afterwards.

A trainer that is killed cannot remove its own. Each folder is locked for as long as its trainer
lives, so that the next one of the same user can tell which are left over, and removes them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

_PREFIX = "benchfarm-script-"
_YOUNG_S = 60.0  # it may not be locked yet


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Make a folder that is removed at the end of the block."""
    _remove_left_over()
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _remove_left_over() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            held = folder.lstat()
            is_young = time.time() - held.st_mtime < _YOUNG_S
            if held.st_uid != os.geteuid() or is_young or folder.is_symlink():
                continue
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            pass  # its trainer lives
        finally:
            os.close(lock)
