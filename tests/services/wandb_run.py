"""Reads a run that W&B has written, by W&B's own messages."""

from __future__ import annotations

import importlib
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_BLOCK, _HEADER, _FILE_HEADER = 32_768, 7, 7
_FULL, _LAST = 1, 4  # a piece that is a whole record, or the end of one


def records(folder: Path) -> Iterator[Any]:
    """Yield the records of the one run in a folder.

    The file is a log of LevelDB, see
    https://github.com/google/leveldb/blob/main/doc/log_format.md, after seven bytes of its own.
    """
    messages = importlib.import_module("wandb.proto.wandb_internal_pb2")
    [file] = folder.glob("run-*.wandb")
    content, place, parts = file.read_bytes(), _FILE_HEADER, b""
    assert content[:4] == b":W&B"
    while place + _HEADER <= len(content):
        left = _BLOCK - place % _BLOCK
        if left < _HEADER:
            place += left
            continue
        _, size, kind = struct.unpack_from("<IHB", content, place)
        part = content[place + _HEADER : place + _HEADER + size]
        parts += part
        place += _HEADER + size
        if kind in (_FULL, _LAST):
            yield messages.Record.FromString(parts)
            parts = b""


def items(message: Any) -> dict[str, Any]:
    """Return a message's items by name."""
    return {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in message}
