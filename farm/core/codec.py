"""Frozen dataclasses to JSON values and back, checked field by field.

Everything that enters a process (a sweep file, a command, a report, a trainer's line) passes
through `from_json`, so that what lies behind it can be trusted. Only the types that such
messages use are known: str, int, float, bool, None, enums, tuples of one type, dicts with
string keys, nested dataclasses, unions with None, and `object` for free JSON. Numbers, texts,
tuples and dicts may have bounds: `Annotated` with a `Range` or a `Length` of `farm.core.ranges`.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import json
import operator
import sys
import types
import typing
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, TypeVar, cast

from farm.core.json_values import SCALARS, Misfit, read_free, step_to
from farm.core.ranges import Length, Range, RangesByName
from farm.errors import InvalidSpec

_PLAIN = frozenset({str, int, float, bool, type(None)})

# Metadata of a field: a table of JSON that is not looked into. Who does must read it with
# `from_json`.
UNREAD: Mapping[str, bool] = types.MappingProxyType({"is_unread": True})

T = TypeVar("T")
_Reader = Callable[[object], object]
_Writer = Callable[[Any], object]

_Number = tuple[type, float, float]  # a number's type, and its least and greatest value
_NO_NUMBER: _Number = (object, 0.0, 0.0)  # JSON has no bare object


def to_json(value: object) -> object:
    """Turn a dataclass, or anything it may hold, into plain JSON values."""
    kind = type(value)
    if kind in _PLAIN:  # most of what a list holds: it is asked some hundred times a message
        return value
    return _writer(cast(Hashable, kind))(value)


def from_json(kind: type[T], data: object, *, where: str = "") -> T:
    """Build `kind` from JSON values; `where` prefixes the field named in an error.

    Raises:
        InvalidSpec: a field is missing, unknown, of another type, not a finite number, or beyond
            the bounds that it declares.
    """
    try:
        return cast(T, _reader(cast(Hashable, kind))(data))
    except Misfit as misfit:
        path = (where + "".join(reversed(misfit.path))).removeprefix(".")
        raise InvalidSpec(path or kind.__name__, misfit.value, misfit.expected) from None


def from_stored(kind: type[T], data: object) -> T | None:
    """Build `kind` from what was stored of a report; None if it would not be taken today.

    Earlier versions took numbers that are beyond their ranges, and no page may fail for that.
    """
    try:
        return from_json(kind, data)
    except InvalidSpec:
        return None


def canonical_json(value: object) -> str:
    """Write the one JSON text of a value: sorted keys, no spaces. Equal values, equal text."""
    return json.dumps(to_json(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def content_hash(value: object) -> str:
    """Return the SHA-256 of the canonical JSON, in hexadecimal."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


@functools.cache
def _writer(kind: type) -> _Writer:
    """Return what turns a `kind` into JSON. Made once, as readers are."""
    if dataclasses.is_dataclass(kind):
        return _dataclass_writer(kind)
    if issubclass(kind, enum.Enum):
        return lambda value: value.value
    if issubclass(kind, frozenset):
        return lambda value: _write_items(sorted(value))
    if issubclass(kind, tuple | list):
        return _write_items
    if issubclass(kind, Mapping):
        return lambda value: {str(key): to_json(item) for key, item in value.items()}
    return lambda value: value


def _write_items(items: Iterable[object]) -> object:
    return [item if type(item) in _PLAIN else to_json(item) for item in items]


def _dataclass_writer(kind: type) -> _Writer:
    names = tuple(field.name for field in dataclasses.fields(kind))
    if len(names) < 2:  # of one name, attrgetter returns no tuple
        return lambda value: {name: to_json(getattr(value, name)) for name in names}
    values_of = operator.attrgetter(*names)
    # Such a table is JSON already, and the largest part of a message.
    unread = {field.name for field in dataclasses.fields(kind) if _is_unread(field)}

    def write(value: object) -> object:
        return {
            name: item if type(item) in _PLAIN or name in unread else to_json(item)
            for name, item in zip(names, values_of(value), strict=True)
        }

    return write


@functools.cache
def _reader(kind: object) -> _Reader:
    """Return what turns JSON into a `kind`. Made once: asking types again is what costs time.

    A reader knows nothing of the way to its data. On an error, and only then, each level adds its
    own step to the path.
    """
    if kind is object:
        return read_free
    origin = typing.get_origin(kind)
    if origin is typing.Annotated:
        return _bounded_reader(kind)
    if origin in (types.UnionType, typing.Union):
        return _union_reader(kind)
    if origin is tuple:
        item = typing.get_args(kind)[0]
        return _tuple_reader(_reader(item), _range_of(item) or _NO_NUMBER)
    if origin is dict:
        return _dict_reader(_reader(typing.get_args(kind)[1]))
    if isinstance(kind, type):
        if dataclasses.is_dataclass(kind):
            return _dataclass_reader(kind)
        if issubclass(kind, enum.Enum):
            return _enum_reader(kind)
        if kind in SCALARS:
            return SCALARS[kind]
    raise TypeError(f"the codec does not know {kind!r}")


def _union_reader(kind: object) -> _Reader:
    members = [m for m in typing.get_args(kind) if m is not type(None)]
    if len(members) != 1:
        raise TypeError(f"the codec knows only unions with None, not {kind!r}")
    read_member = _reader(members[0])
    return lambda data: None if data is None else read_member(data)


def _bounded_reader(kind: object) -> _Reader:
    """Return what reads a value and holds it to the bounds of its annotation."""
    plain, bound = typing.get_args(kind)
    read_plain = _reader(plain)

    def read_sized(data: object) -> object:
        if isinstance(data, str | list | tuple | dict) and len(data) > bound.most:
            items = "characters" if isinstance(data, str) else "items"
            raise Misfit(f"{len(data)} of them", f"at most {bound.most} {items}")
        return read_plain(data)

    if isinstance(bound, RangesByName):
        return _numbers_reader(bound)
    if isinstance(bound, Range):
        return lambda data: _within(bound, read_plain(data))
    if isinstance(bound, Length):
        return read_sized
    raise TypeError(f"the codec does not know the bounds of {kind!r}")


def _numbers_reader(bound: RangesByName) -> _Reader:
    """Return what reads a table of numbers, each within the bounds that its name has."""
    range_of = functools.lru_cache(maxsize=4096)(bound.of)

    def read(data: object) -> object:
        if not isinstance(data, dict):
            raise Misfit(data, "a table")
        if len(data) > bound.most:
            raise Misfit(f"{len(data)} of them", f"at most {bound.most} items")
        items: dict[str, object] = {}
        for key, item in data.items():
            if not isinstance(key, str) or len(key) > bound.most_characters:
                raise Misfit(key, f"a text of at most {bound.most_characters} characters as key")
            its_range = range_of(key)
            if not (type(item) is float and its_range.low <= item <= its_range.high):
                try:
                    item = _within(its_range, SCALARS[float](item))
                except Misfit as misfit:
                    raise misfit.below(step_to(key)) from None
            items[key] = item
        return items

    return read


def _within(bound: Range, number: object) -> object:
    if not bound.takes(cast(float, number)):
        raise Misfit(number, str(bound))
    return number


def _tuple_reader(read_item: _Reader, numbers: _Number) -> _Reader:
    number, low, high = numbers

    def read(data: object) -> object:
        if not isinstance(data, list | tuple):
            raise Misfit(data, "a list")
        items: list[object] = []
        try:
            for item in data:
                if type(item) is number and low <= item <= high:  # type: ignore[operator]
                    items.append(item)
                else:
                    items.append(read_item(item))
        except Misfit as misfit:
            raise misfit.below(f"[{len(items)}]") from None
        return tuple(items)

    return read


def _dict_reader(read_item: _Reader) -> _Reader:
    def read(data: object) -> object:
        if not isinstance(data, dict):
            raise Misfit(data, "a table")
        items: dict[str, object] = {}
        for key, item in data.items():
            if not isinstance(key, str):
                raise Misfit(key, "a text as key")
            try:
                items[key] = read_item(item)
            except Misfit as misfit:
                raise misfit.below(step_to(key)) from None
        return items

    return read


def _enum_reader(kind: type[enum.Enum]) -> _Reader:
    def read(data: object) -> object:
        try:
            return kind(data)
        except ValueError:
            allowed = ", ".join(repr(m.value) for m in kind)
            raise Misfit(data, f"one of {allowed}") from None

    return read


def _dataclass_reader(kind: type) -> _Reader:
    hints = typing.get_type_hints(kind, include_extras=True)
    fields = dataclasses.fields(kind)
    readers = {
        field.name: _read_table if _is_unread(field) else _reader(hints[field.name])
        for field in fields
    }
    required = tuple(
        field.name
        for field in fields
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    )

    def unknown(data: object) -> object:
        raise Misfit(data, f"one of the fields {', '.join(readers)}")

    # Series hold little but numbers, and a call for each of them is most of what a sample costs.
    numbers = {name: found for name in readers if (found := _range_of(hints[name])) is not None}

    def read(data: object) -> object:
        if not isinstance(data, dict):
            raise Misfit(data, "a table")
        values: dict[str, object] = {}
        key = ""
        try:
            for key, item in data.items():
                number, low, high = numbers.get(key, _NO_NUMBER)
                if type(item) is number and low <= item <= high:  # type: ignore[operator]
                    values[key] = item
                else:
                    values[key] = readers.get(key, unknown)(item)
        except Misfit as misfit:
            raise misfit.below(step_to(key)) from None
        for name in required:
            if name not in values:
                raise Misfit(None, "a value: this field is required", step_to(name))
        return kind(**values)

    return read


def _is_unread(field: dataclasses.Field[Any]) -> bool:
    return UNREAD.items() <= field.metadata.items()


def _range_of(kind: object) -> _Number | None:
    """Return which numbers a field takes as they are: their type, and between which bounds."""
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        members = [member for member in typing.get_args(kind) if member is not type(None)]
        kind = members[0] if len(members) == 1 else kind
    bound = None
    if typing.get_origin(kind) is typing.Annotated:
        kind, bound = typing.get_args(kind)
    if kind is float:
        low, high = -sys.float_info.max, sys.float_info.max
    elif kind is int:
        low, high = -(2**63), 2**63 - 1
    else:
        return None
    return (kind, bound.low, bound.high) if isinstance(bound, Range) else (kind, low, high)


def _read_table(data: object) -> object:
    if isinstance(data, dict):
        return data
    raise Misfit(data, "a table")
