"""Texts as every database takes them."""

from __future__ import annotations


def storable(value: object) -> object:
    """Replace in free JSON what no database stores in a text: NUL, and half a surrogate pair.

    The log of a crashed program may hold any, and Python writes a file name that is not UTF-8 in
    such halves; losing the character is better than the report.
    """
    if isinstance(value, str):
        return value.replace("\0", "\ufffd").encode(errors="replace").decode()
    if isinstance(value, dict):
        return {str(storable(key)): storable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [storable(item) for item in value]
    return value
