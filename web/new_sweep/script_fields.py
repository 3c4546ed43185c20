"""The fields of a training script in the form of a new sweep, and the files that come with it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import PurePosixPath

from farm.configuration.bundle import SCRIPT_PATH, ScriptBundle, from_archiver, is_script_path
from farm.configuration.scripts import CASE_KEYS
from farm.errors import InvalidSpec

FILES = "script_files"  # the upload
# Of a case the fields are those of the file. Tables are written as words of a shell.
_TABLES = ("parameters", "environment")
HINTS: Mapping[str, str] = {
    **CASE_KEYS,
    "script": "one that agents have, or its path in the files below; instead of models, data sets "
    "and strategies",
    "args": "as in a shell, such as --batch-size {per_rank_batch_size} --hidden {hidden}",
    "parameters": "values of {hidden} and others in the arguments, such as hidden=256,1024 lr=1e-3",
    "environment": "variables, such as OMP_NUM_THREADS=2",
}


def value_of(key: str, text: str) -> object:
    """Return what a sweep file would have for what was typed.

    Raises:
        InvalidSpec: a table is not of the form NAME=VALUE NAME=VALUE.
    """
    if key == "examples_per_epoch":
        return int(text) if text.isdecimal() else text
    if key not in _TABLES:
        return text
    expected = f"words such as {HINTS[key].rpartition('such as ')[2]}"
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InvalidSpec(key, text, f"{expected} ({error})") from None
    table: dict[str, object] = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not sign or name in table:
            raise InvalidSpec(key, text, expected)
        table[name] = value.split(",") if key == "parameters" else value
    return table


def text_of(key: str, value: object) -> str | None:
    """Return what stands in the field for a value of a sweep file; None: it can hold no such."""
    if key == "args" and isinstance(value, list):
        return shlex.join(map(str, value)) if value else None
    if key not in _TABLES:
        return str(value) if isinstance(value, str | int) and value != "" else None
    if not isinstance(value, Mapping):
        return None
    wanted = {
        name: list(map(_shown, given if isinstance(given, list) else [given]))
        for name, given in value.items()
    }
    text = " ".join(shlex.quote(f"{name}={','.join(texts)}") for name, texts in wanted.items())
    read = value_of(key, text)
    assert isinstance(read, dict)
    if key == "environment":
        read = {name: [one] for name, one in read.items()}
    return text if text and read == wanted else None


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def bundle_of_upload(file_name: str, content: bytes, *, script: str) -> tuple[ScriptBundle, str]:
    """Return a Python file, or a ZIP file as archivers make it, as a bundle with its script.

    `script`: its path in the archive; may be empty where there is only one Python file.

    Raises:
        InvalidSpec: of the field `script_files` or `script`.
    """
    name = PurePosixPath(file_name).name
    if name.endswith(".py"):
        if not is_script_path(name):
            raise InvalidSpec(FILES, name, SCRIPT_PATH)
        return ScriptBundle({name: content}), name
    try:
        bundle = from_archiver(content)
    except InvalidSpec as error:
        raise InvalidSpec(FILES, error.value, error.expected) from None
    there = [path for path in bundle.files if path.endswith(".py")]
    if not script and len(there) == 1:
        [script] = there
    if script not in bundle.files:
        shown = ", ".join(there[:10]) or "a Python file, of which the archive has none"
        raise InvalidSpec("script", script or None, f"the script's path in {name}: {shown}")
    return bundle, script
