"""Frozen dataclasses to JSON values and back, checked field by field.

Everything that enters a process (a sweep file, a command, a report, a trainer's line) passes
through `from_json`, so that what lies behind it can be trusted. Only the types that such
messages use are known: str, int, float, bool, None, enums, tuples of one type, dicts with
string keys, nested dataclasses, unions with None, and `object` for free JSON.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import json
import math
import types
import typing
from collections.abc import Mapping
from typing import TypeVar, cast

from farm.errors import InvalidSpec

# Of free JSON; what we write ourselves has three or four.
MAX_DEPTH = 32

T = TypeVar("T")

# Of a key, in the path that an error names: a long one would be copied with every item below it.
_SHOWN_CHARACTERS = 80


def to_json(value: object) -> object:
    """Turn a dataclass, or anything it may hold, into plain JSON values."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, tuple | list | frozenset):
        items = sorted(value) if isinstance(value, frozenset) else value
        return [to_json(item) for item in items]
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    return value


def from_json(kind: type[T], data: object, *, where: str = "") -> T:
    """Build `kind` from JSON values; `where` prefixes the field named in an error.

    Raises:
        InvalidSpec: a field is missing, unknown, of another type, or not a finite number.
    """
    return cast(T, _decode(kind, data, where))


def canonical_json(value: object) -> str:
    """Write the one JSON text of a value: sorted keys, no spaces. Equal values, equal text."""
    return json.dumps(to_json(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def content_hash(value: object) -> str:
    """Return the SHA-256 of the canonical JSON, in hexadecimal."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


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


@functools.cache
def _hints(kind: type[object]) -> dict[str, object]:
    return typing.get_type_hints(kind)


def _decode(kind: object, data: object, where: str) -> object:
    if kind is object:
        _check_free(data, where, depth=0)
        return data
    origin = typing.get_origin(kind)
    if origin in (types.UnionType, typing.Union):
        return _decode_union(kind, data, where)
    if origin is tuple:
        if not isinstance(data, list | tuple):
            raise InvalidSpec(where, data, "a list")
        item_kind = typing.get_args(kind)[0]
        return tuple(_decode(item_kind, item, f"{where}[{i}]") for i, item in enumerate(data))
    if origin is dict:
        if not isinstance(data, dict):
            raise InvalidSpec(where, data, "a table")
        item_kind = typing.get_args(kind)[1]
        return {
            _key(key, where): _decode(item_kind, item, f"{where}.{key[:_SHOWN_CHARACTERS]}")
            for key, item in data.items()
        }
    if isinstance(kind, type):
        return _decode_class(kind, data, where)
    raise TypeError(f"{where}: the codec does not know {kind!r}")


def _check_free(data: object, where: str, *, depth: int) -> None:
    """Refuse in free JSON what JSON has not, what no database takes, and endless nesting."""
    if depth > MAX_DEPTH:
        raise InvalidSpec(where, data, f"at most {MAX_DEPTH} levels")
    if isinstance(data, dict):
        for key, item in data.items():
            shown = _key(key, where)[:_SHOWN_CHARACTERS]
            _check_free(item, f"{where}.{shown}", depth=depth + 1)
    elif isinstance(data, list | tuple):
        for i, item in enumerate(data):
            _check_free(item, f"{where}[{i}]", depth=depth + 1)
    elif data is not None and not isinstance(data, str):
        kinds = (bool, int, float)
        _decode_class(next((k for k in kinds if isinstance(data, k)), str), data, where)


def _key(key: object, where: str) -> str:
    if not isinstance(key, str):
        raise InvalidSpec(where, key, "a text as key")
    return key


def _decode_union(kind: object, data: object, where: str) -> object:
    members = [m for m in typing.get_args(kind) if m is not type(None)]
    if data is None:
        return None
    if len(members) != 1:
        raise TypeError(f"{where}: the codec knows only unions with None, not {kind!r}")
    return _decode(members[0], data, where)


def _decode_class(kind: type, data: object, where: str) -> object:
    if dataclasses.is_dataclass(kind):
        return _decode_dataclass(kind, data, where)
    if issubclass(kind, enum.Enum):
        try:
            return kind(data)
        except ValueError:
            allowed = ", ".join(repr(m.value) for m in kind)
            raise InvalidSpec(where, data, f"one of {allowed}") from None
    if kind is float and isinstance(data, int) and not isinstance(data, bool):
        try:
            data = float(data)
        except OverflowError:
            raise InvalidSpec(where, data, "a finite number") from None
    # bool is an int in Python, but 'true' is no count.
    if not isinstance(data, kind) or (isinstance(data, bool) and kind is not bool):
        raise InvalidSpec(where, data, _NAMES.get(kind, kind.__name__))
    if isinstance(data, str) and "\0" in data:
        raise InvalidSpec(where, data, "a text without the character NUL")
    if isinstance(data, float) and not math.isfinite(data):
        raise InvalidSpec(where, data, "a finite number")
    if kind is int and isinstance(data, int) and not -(2**63) <= data < 2**63:
        raise InvalidSpec(where, data, "a whole number of at most 64 bits")
    return data


def _decode_dataclass(kind: type, data: object, where: str) -> object:
    if not isinstance(data, dict):
        raise InvalidSpec(where or kind.__name__, data, "a table")
    prefix = f"{where}." if where else ""
    fields = {f.name: f for f in dataclasses.fields(kind)}
    for key in data:
        if key not in fields:
            raise InvalidSpec(f"{prefix}{key}", data[key], f"one of the fields {', '.join(fields)}")
    hints = _hints(kind)
    values: dict[str, object] = {}
    for name, field in fields.items():
        if name in data:
            values[name] = _decode(hints[name], data[name], f"{prefix}{name}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise InvalidSpec(f"{prefix}{name}", None, "a value: this field is required")
    return kind(**values)


_NAMES: dict[type, str] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
}
