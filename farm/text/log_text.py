"""Removes terminal control characters from the output of programs."""

from __future__ import annotations

import re

# Colours and movements of the cursor, as ECMA-48 has them.
_CONTROL_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_LINE_ENDS = re.compile(r"\r+\n|\r")
# The control characters that are left, but for tabs and ends of lines.
_CONTROLS = dict.fromkeys([*range(0x09), 0x0B, 0x0C, *range(0x0E, 0x20), *range(0x7F, 0xA0)])
# What a terminal acts on: control characters, marks that reverse the direction of the text around
# them, further ends of lines, and halves of surrogate pairs, which cannot be encoded.
_ACTED_ON = (
    r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"
    r"\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
)
_UNSAFE = re.compile(rf"[{_ACTED_ON}]|\r(?!\n)")
_UNSAFE_IN_A_LINE = re.compile(rf"[{_ACTED_ON}\t\r\n]")


def readable(text: str) -> str:
    """Return the text without control characters.

    What overwrites its line, such as a bar of progress, becomes lines of their own.
    """
    # Most logs have neither, and to find that out by an expression takes twenty times as long.
    if "\x1b" in text:
        text = _CONTROL_SEQUENCE.sub("", text)
    if "\r" in text:
        text = _LINE_ENDS.sub("\n", text)
    return text.translate(_CONTROLS)


def printable(text: str) -> str:
    r"""Return the text with terminal control characters escaped, such as `\x1b`.

    Tabs and ends of lines stay.
    """
    return _UNSAFE.sub(_written_out, text)


def one_line(text: str) -> str:
    """Return what `printable` does, with tabs and ends of lines written out as well."""
    return _UNSAFE_IN_A_LINE.sub(_written_out, text)


def _written_out(found: re.Match[str]) -> str:
    return ascii(found[0])[1:-1]


def last_lines(text: str, count: int, *, most_characters: int) -> str:
    """Return the last lines of a text, without a line end behind them.

    More characters than `most_characters` are cut off at the front, within a line if need be.
    """
    lines = text.removesuffix("\n").rsplit("\n", count)
    return "\n".join(lines[-count:])[-most_characters:]
