"""Names of users' own models: Python files that operators install on agents. Pure.

A sweep says `model = "file:my_model.py"`. Only that name is sent. An agent that has the file, and
whose operator allows it, reports a capability for it.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable

from farm.errors import InvalidSpec

PREFIX = "file:"
# Before the name of a file that an agent has, such as "model:my_model.py".
MODEL_CAPABILITY = "model:"
ANY = "*"  # among the files that are allowed: all that are in the folder
FILE_NAME = "a file's name of letters, digits, '_' and '-' that ends in .py"
_EXPECTED = f"'{PREFIX}' and {FILE_NAME}"
# No separator and no dot but the last: neither another folder nor a hidden file can be named.
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,95}\.py")


def is_file_name(name: str) -> bool:
    """Whether a file of that name may hold a model."""
    return _FILE_NAME.fullmatch(name) is not None


def file_of(model: str) -> str | None:
    """Return the file's name that a model's name asks for; None for a registered model.

    Raises:
        InvalidSpec: no file may have that name.
    """
    if not model.startswith(PREFIX):
        return None
    name = model.removeprefix(PREFIX)
    if not is_file_name(name):
        raise InvalidSpec("model", model, _EXPECTED)
    return name


def files_of(capabilities: Iterable[str]) -> set[str]:
    """Return the names, as a sweep has them, of the models that these capabilities speak of."""
    found = (one for one in capabilities if one.startswith(MODEL_CAPABILITY))
    return {PREFIX + one.removeprefix(MODEL_CAPABILITY) for one in found}


def trouble_of(*, mode: int, owner: int, own_uid: int, is_folder: bool = False) -> str | None:
    """Return why a file, or all files of a folder, must not be run: others could have written it.

    `mode` and `owner` are of the file or the folder; `own_uid` is the agent's user.
    """
    if not (stat.S_ISDIR(mode) if is_folder else stat.S_ISREG(mode)):
        return "is no folder" if is_folder else "is no regular file"
    if owner not in (0, own_uid):
        return f"belongs to user {owner}, and not to root or the agent's user"
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "can be written by others than its owner (chmod go-w)"
    return None
