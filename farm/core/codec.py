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
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar, cast

from farm.errors import InvalidSpec

MAX_DEPTH = 32  # of free JSON; what we write ourselves has three or four
_PLAIN = frozenset({str, int, float, bool, type(None)})

# Metadata of a field: a table that is not looked into. Who does must read it with `from_json`.
UNREAD: Mapping[str, bool] = types.MappingProxyType({"is_unread": True})

T = TypeVar("T")
_Reader = Callable[[object], object]

# Of a key, in the path that an error names: a long one would be copied with every item below it.
_SHOWN_CHARACTERS = 80
_NO_NUMBER = (object, 0.0, 0.0)  # JSON has no bare object


def to_json(value: object) -> object:
    """Turn a dataclass, or anything it may hold, into plain JSON values."""
    if type(value) in _PLAIN:  # most of what a list holds: it is asked some hundred times a message
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, tuple | list | frozenset):
        items = sorted(value) if isinstance(value, frozenset) else value
        return [item if type(item) in _PLAIN else to_json(item) for item in items]
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    return value


def from_json(kind: type[T], data: object, *, where: str = "") -> T:
    """Build `kind` from JSON values; `where` prefixes the field named in an error.

    Raises:
        InvalidSpec: a field is missing, unknown, of another type, or not a finite number.
    """
    try:
        return cast(T, _reader(cast(Hashable, kind))(data))
    except _Misfit as misfit:
        path = (where + "".join(reversed(misfit.path))).removeprefix(".")
        raise InvalidSpec(path or kind.__name__, misfit.value, misfit.expected) from None


def canonical_json(value: object) -> str:
    """Write the one JSON text of a value: sorted keys, no spaces. Equal values, equal text."""
    return json.dumps(to_json(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def content_hash(value: object) -> str:
    """Return the SHA-256 of the canonical JSON, in hexadecimal."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


class _Misfit(Exception):
    """What does not fit. `path`: where, the innermost step first, such as `[3]` or `.rank`."""

    def __init__(self, value: object, expected: str, *path: str) -> None:
        self.value = value
        self.expected = expected
        self.path = list(path)

    def below(self, step: str) -> _Misfit:
        self.path.append(step)
        return self


@functools.cache
def _reader(kind: object) -> _Reader:
    """Return what turns JSON into a `kind`. Made once: asking types again is what costs time.

    A reader knows nothing of the way to its data. On an error, and only then, each level adds its
    own step to the path.
    """
    if kind is object:
        return _read_free
    origin = typing.get_origin(kind)
    if origin in (types.UnionType, typing.Union):
        return _union_reader(kind)
    if origin is tuple:
        return _tuple_reader(_reader(typing.get_args(kind)[0]))
    if origin is dict:
        return _dict_reader(_reader(typing.get_args(kind)[1]))
    if isinstance(kind, type):
        if dataclasses.is_dataclass(kind):
            return _dataclass_reader(kind)
        if issubclass(kind, enum.Enum):
            return _enum_reader(kind)
        if kind in _SCALARS:
            return _SCALARS[kind]
    raise TypeError(f"the codec does not know {kind!r}")


def _union_reader(kind: object) -> _Reader:
    members = [m for m in typing.get_args(kind) if m is not type(None)]
    if len(members) != 1:
        raise TypeError(f"the codec knows only unions with None, not {kind!r}")
    read_member = _reader(members[0])
    return lambda data: None if data is None else read_member(data)


def _tuple_reader(read_item: _Reader) -> _Reader:
    def read(data: object) -> object:
        if not isinstance(data, list | tuple):
            raise _Misfit(data, "a list")
        items: list[object] = []
        try:
            for item in data:
                items.append(read_item(item))
        except _Misfit as misfit:
            raise misfit.below(f"[{len(items)}]") from None
        return tuple(items)

    return read


def _dict_reader(read_item: _Reader) -> _Reader:
    def read(data: object) -> object:
        if not isinstance(data, dict):
            raise _Misfit(data, "a table")
        items: dict[str, object] = {}
        for key, item in data.items():
            if not isinstance(key, str):
                raise _Misfit(key, "a text as key")
            try:
                items[key] = read_item(item)
            except _Misfit as misfit:
                raise misfit.below(_step(key)) from None
        return items

    return read


def _enum_reader(kind: type[enum.Enum]) -> _Reader:
    def read(data: object) -> object:
        try:
            return kind(data)
        except ValueError:
            allowed = ", ".join(repr(m.value) for m in kind)
            raise _Misfit(data, f"one of {allowed}") from None

    return read


def _dataclass_reader(kind: type) -> _Reader:
    hints = typing.get_type_hints(kind)
    fields = dataclasses.fields(kind)
    readers = {
        field.name: _read_table
        if UNREAD.items() <= field.metadata.items()
        else _reader(hints[field.name])
        for field in fields
    }
    required = tuple(
        field.name
        for field in fields
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    )

    def unknown(data: object) -> object:
        raise _Misfit(data, f"one of the fields {', '.join(readers)}")

    # Series hold little but numbers, and a call for each of them is most of what a sample costs.
    numbers = {name: found for name in readers if (found := _range_of(hints[name])) is not None}

    def read(data: object) -> object:
        if not isinstance(data, dict):
            raise _Misfit(data, "a table")
        values: dict[str, object] = {}
        key = ""
        try:
            for key, item in data.items():
                number, low, high = numbers.get(key, _NO_NUMBER)
                if type(item) is number and low < item < high:  # type: ignore[operator] # a number
                    values[key] = item
                else:
                    values[key] = readers.get(key, unknown)(item)
        except _Misfit as misfit:
            raise misfit.below(_step(key)) from None
        for name in required:
            if name not in values:
                raise _Misfit(None, "a value: this field is required", _step(name))
        return kind(**values)

    return read


def _range_of(kind: object) -> tuple[type, float, float] | None:
    """Return which numbers a field takes as they are: their type, and between which bounds."""
    for number, low, high in ((float, -math.inf, math.inf), (int, -(2**63) - 1, 2**63)):
        if kind in (number, number | None):
            return number, low, high
    return None


def _read_table(data: object) -> object:
    if isinstance(data, dict):
        return data
    raise _Misfit(data, "a table")


def _read_free(data: object, depth: int = 0) -> object:
    """Refuse in free JSON what JSON has not, what no database takes, and endless nesting."""
    if depth > MAX_DEPTH:
        raise _Misfit(data, f"at most {MAX_DEPTH} levels")
    if isinstance(data, dict):
        for key, item in data.items():
            if not isinstance(key, str):
                raise _Misfit(key, "a text as key")
            if isinstance(item, float) and math.isfinite(item):
                continue  # series hold little else, and a call for each would double their cost
            try:
                _read_free(item, depth + 1)
            except _Misfit as misfit:
                raise misfit.below(_step(key)) from None
    elif isinstance(data, list | tuple):
        for i, item in enumerate(data):
            try:
                _read_free(item, depth + 1)
            except _Misfit as misfit:
                raise misfit.below(f"[{i}]") from None
    elif isinstance(data, float):
        _read_float(data)
    elif isinstance(data, int):
        _read_int(int(data))
    elif data is not None and not isinstance(data, str):
        raise _Misfit(data, "a text")
    return data


def _read_float(data: object) -> float:
    if isinstance(data, float) and math.isfinite(data):  # first, since series hold little else
        return data
    if isinstance(data, int) and not isinstance(data, bool):
        try:
            data = float(data)
        except OverflowError:
            raise _Misfit(data, "a finite number") from None
    if not isinstance(data, float):
        raise _Misfit(data, "a number")
    if not math.isfinite(data):
        raise _Misfit(data, "a finite number")
    return data


def _read_int(data: object) -> int:
    # bool is an int in Python, but 'true' is no count.
    if not isinstance(data, int) or isinstance(data, bool):
        raise _Misfit(data, "a whole number")
    if not -(2**63) <= data < 2**63:
        raise _Misfit(data, "a whole number of at most 64 bits")
    return data


def _read_str(data: object) -> str:
    if not isinstance(data, str):
        raise _Misfit(data, "a text")
    if "\0" in data:
        raise _Misfit(data, "a text without the character NUL")
    return data


def _read_bool(data: object) -> bool:
    if not isinstance(data, bool):
        raise _Misfit(data, "true or false")
    return data


def _step(key: object) -> str:
    return f".{str(key)[:_SHOWN_CHARACTERS]}"


_SCALARS: dict[type, _Reader] = {
    float: _read_float,
    int: _read_int,
    str: _read_str,
    bool: _read_bool,
}
