"""Files and folders that other users of the machine cannot read: state, logs, stores, secrets.

Long-running processes write no files for other users: they call `keep_files_private` once. Commands
write files that the user requests, such as an export, with the user's umask, and all other files
through the functions here.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import IO

PRIVATE_UMASK = 0o077
_FILE, _FOLDER = 0o600, 0o700


def keep_files_private() -> int:
    """Let this process, and those that it starts, write for their own user alone.

    Return the umask from before.
    """
    return os.umask(PRIVATE_UMASK)


def make_private_folder(folder: Path) -> None:
    """Make a folder and its missing parents; existing ones are not changed.

    Raises OSError.
    """
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    for one in reversed(missing):
        with contextlib.suppress(FileExistsError):  # somebody else has made it meanwhile
            one.mkdir(mode=_FOLDER)
    folder.mkdir(exist_ok=True)  # raises where there is something else


def open_private(path: Path, mode: str) -> IO[str]:
    """Open a text file to write or append; a new one is private. Raises OSError."""
    flags = {"a": os.O_APPEND, "a+": os.O_APPEND | os.O_RDWR, "w": os.O_TRUNC}[mode]
    if "+" not in mode:
        flags |= os.O_WRONLY
    return os.fdopen(os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, _FILE), mode)


def make_private_file(path: Path) -> None:
    """Make an empty file where there is none. Raises OSError."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE))
