"""Writes values as TOML, in the layout of sweep files written by hand. Pure.

tomli-w is not used, since it puts every item of a list on a line of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_LARGEST_EXACT = 2.0**53  # beyond, a float written without a fraction would be another number


def key_text(key: str) -> str:
    """Return a key, in quotes where TOML wants them."""
    return key if _BARE_KEY.fullmatch(key) else string_text(key)


def value_text(value: object) -> str:
    """Return a value of a sweep file on one line.

    A float without a fraction is written as a whole number: 20 ms, and not 20.0.
    """
    if isinstance(value, str):
        return string_text(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        pairs = (f"{key_text(str(key))} = {value_text(item)}" for key, item in value.items())
        return "{ " + ", ".join(pairs) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(value_text(item) for item in value) + "]"
    if isinstance(value, float) and value.is_integer() and abs(value) <= _LARGEST_EXACT:
        return str(int(value))
    return repr(value)


def string_text(text: str) -> str:
    """Return a text in quotes."""
    # A JSON string is a basic string of TOML, but for DEL, which TOML wants escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def document_text(data: Mapping[str, object]) -> str:
    """Return a whole sweep file: single values first, then its lists of tables.

    What is None is left out: TOML has no such value.
    """
    tables = {key: found for key, value in data.items() if (found := _tables(value))}
    lines = [_line(key, value) for key, value in data.items() if key not in tables]
    for key, items in tables.items():
        for item in items:
            lines += ["", f"[[{key_text(key)}]]"]
            lines += [_line(name, value) for name, value in item.items()]
    return "\n".join(line for line in lines if line is not None) + "\n"


def _line(key: str, value: object) -> str | None:
    return None if value is None else f"{key_text(key)} = {value_text(value)}"


def _tables(value: object) -> Sequence[Mapping[str, object]]:
    items = value if isinstance(value, list | tuple) else ()
    tables = [item for item in items if isinstance(item, Mapping)]
    return tables if len(tables) == len(items) else ()
