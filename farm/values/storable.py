"""Replaces characters of a text that databases cannot store."""

from __future__ import annotations


def storable(text: str) -> str:
    """Replace in a text what no database stores: NUL, and half a surrogate pair.

    The log of a crashed program may hold any, and Python writes a file name that is not UTF-8 in
    such halves; losing the character is better than the report.
    """
    if text.isascii() and "\0" not in text:  # nearly all that messages hold
        return text
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()
