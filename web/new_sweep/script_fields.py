"""Form fields for a training script of a new sweep, and the files uploaded with it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import PurePosixPath

from farm.configuration.bundle import (
    SCRIPT_PATH,
    ScriptBundle,
    check_script_size,
    from_archiver,
    is_script_path,
)
from farm.configuration.scripts import CASE_KEYS, shell_text
from farm.errors import InvalidSpec

FILES = "script_files"  # the upload
_MOST_SHOWN = 10


def value_of(key: str, text: str) -> object:
    """Return the value in a sweep file for the text of a field; a table is typed as NAME=VALUE ...

    Raises:
        InvalidSpec: a table is not of the form NAME=VALUE NAME=VALUE.
    """
    if key == "examples_per_epoch":
        return int(text) if text.isdecimal() else text
    if not CASE_KEYS[key].is_table:
        return text
    expected = f"words such as {CASE_KEYS[key].typed.rpartition('such as ')[2]}"
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
        return shell_text(map(str, value)) if value else None
    if not CASE_KEYS[key].is_table:
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


def bundle_of_upload(file_name: str, content: bytes) -> ScriptBundle:
    """Return a Python file, or a ZIP file as archivers make it, as a bundle.

    Raises:
        InvalidSpec: of the field `script_files`.
    """
    name = PurePosixPath(file_name).name
    if name.endswith(".py"):
        if not is_script_path(name):
            raise InvalidSpec(FILES, name, SCRIPT_PATH)
        check_script_size(len(content), FILES)
        return ScriptBundle({name: content})
    if not name.lower().endswith(".zip"):
        raise InvalidSpec(FILES, name, "a Python file or a ZIP file")
    try:
        return from_archiver(content)
    except InvalidSpec as error:
        raise InvalidSpec(FILES, error.value, error.expected) from None


def script_in(bundle: ScriptBundle, typed: str) -> str:
    """Return the path of the script in a bundle.

    `typed`: may be empty where there is only one Python file, and may begin with the folder that a
    ZIP file had around all others.

    Raises:
        InvalidSpec: of the field `script`; it lists some that could be meant.
    """
    there = [path for path in bundle.files if is_script_path(path)]
    if not typed and len(there) == 1:
        return there[0]
    found = next((path for path in (typed, typed.partition("/")[2]) if path in there), None)
    if found is None:
        shown = ", ".join(there[:_MOST_SHOWN]) or "a Python file, of which it has none"
        raise InvalidSpec("script", typed or None, f"the script's path in its files: {shown}")
    check_script_size(len(bundle.files[found]), "script")
    return found
