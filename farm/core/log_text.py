"""What a program wrote for a terminal, as a text that does nothing but be read."""

from __future__ import annotations

import re

# Colours and movements of the cursor, as ECMA-48 has them.
_CONTROL_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_LINE_ENDS = re.compile(r"\r+\n|\r")
# The control characters that are left, but for tabs and ends of lines.
_CONTROLS = dict.fromkeys([*range(0x09), 0x0B, 0x0C, *range(0x0E, 0x20), *range(0x7F, 0xA0)])


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


def last_lines(text: str, count: int, *, most_characters: int) -> str:
    """Return the last lines of a text, without a line end behind them.

    More characters than `most_characters` are cut off at the front, within a line if need be.
    """
    lines = text.removesuffix("\n").rsplit("\n", count)
    return "\n".join(lines[-count:])[-most_characters:]
