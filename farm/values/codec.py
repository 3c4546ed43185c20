"""Frozen dataclasses to JSON values and back, checked field by field.

Everything that enters a process (a command, a report, a trainer's line, a stored specification) is
parsed here once, by `from_json` or, if it is text, by `from_text`. The result can be trusted. Only
the types of such messages are supported: str, int, float, bool, None, enums, tuples of one type,
dicts with string keys, nested dataclasses, unions with None, and `object` for any JSON. Numbers,
texts, tuples and dicts may have bounds: `Annotated` with a `Range`, `RangesByName` or `Length` of
`farm.values.ranges`.
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
from typing import Any, TypeVar, cast

from farm.errors import InvalidSpec
from farm.values.ranges import FINITE_FLOAT, Length, Range, RangesByName

MAX_DEPTH = 32  # of free JSON; what we write ourselves has three or four
# Of a key, in the path that an error names: a long one would be copied with every item below it.
_SHOWN_CHARACTERS = 80

# Metadata of a field: a table of JSON that is passed on as it is. `from_json` reads it later.
UNDECODED: Mapping[str, bool] = types.MappingProxyType({"is_unread": True})

T = TypeVar("T")
_Reader = Callable[[object], object]

_PLAIN = frozenset({str, int, float, bool, type(None)})  # JSON as they are


def to_json(value: object) -> object:
    """Turn a dataclass, or anything it may hold, into plain JSON values."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, tuple | list):
        return [to_json(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, frozenset):
        return [to_json(item) for item in sorted(value)]
    if isinstance(value, enum.Enum):
        return value.value
    if dataclasses.is_dataclass(value):
        return {
            key: write(getattr(value, name))
            for name, key, write in _written(cast(Hashable, type(value)))
        }
    return value


def alias(name: str, *, write: Callable[[Any], object]) -> Mapping[str, object]:
    """Return the metadata of a field that is only written, under another name than its own."""
    return types.MappingProxyType({"alias": name, "write": write})


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


def from_text(kind: type[T], text: str | bytes, *, where: str = "") -> T:
    """Build `kind` from the text of its JSON.

    Raises:
        InvalidSpec: it is no JSON, or see `from_json`.
    """
    return from_json(kind, parsed(text, where=where or kind.__name__), where=where)


def parsed(text: str | bytes, *, where: str) -> object:
    """Return the JSON values in a text that anybody may have written, to be read by `from_json`.

    Raises:
        InvalidSpec: it is no JSON, or too nested to be read.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidSpec(where, text, "JSON") from None


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
def _written(kind: type) -> tuple[tuple[str, str, Callable[[Any], object]], ...]:
    """Return the fields of a dataclass: its name, that in JSON, and what turns it into JSON."""
    found = []
    for field in dataclasses.fields(kind):
        metadata = field.metadata
        write = metadata.get(
            "write", _as_it_is if UNDECODED.items() <= metadata.items() else to_json
        )
        found.append((field.name, metadata.get("alias", field.name), write))
    return tuple(found)


def _as_it_is(value: object) -> object:
    return value


@functools.cache
def _fields(kind: type) -> tuple[tuple[str, bool], ...]:
    """Return the names of a dataclass's fields, and whether each is a table that is not read."""
    return tuple(
        (field.name, UNDECODED.items() <= field.metadata.items())
        for field in dataclasses.fields(kind)
    )


class Misfit(Exception):
    """What does not fit. `path`: where, the innermost step first, such as `[3]` or `.rank`."""

    def __init__(self, value: object, expected: str) -> None:
        self.value = value
        self.expected = expected
        self.path: list[str] = []

    def below(self, step: int | str) -> Misfit:
        """Add the step that leads to the value: the index in a list, or the key of a table."""
        self.path.append(f"[{step}]" if isinstance(step, int) else f".{step[:_SHOWN_CHARACTERS]}")
        return self


@functools.cache
def _reader(kind: Any) -> _Reader:
    """Return what turns JSON into a `kind`. Made once: asking types again is what costs time.

    A reader knows nothing of the way to its data. On an error, and only then, each level adds its
    own step to the path.
    """
    if kind in _SCALARS:
        return _SCALARS[kind]
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return _bounded_reader(*arguments)
    if origin in (types.UnionType, typing.Union):
        members = [member for member in arguments if member is not type(None)]
        if len(members) != 1:
            raise TypeError(f"the codec knows only unions with None, not {kind!r}")
        read_member = _reader(members[0])
        return lambda data: None if data is None else read_member(data)
    if origin is tuple:
        read_item = _reader(arguments[0])
        return lambda data: tuple(_read_list(data, read_item))
    if origin is dict:
        read_value = _reader(arguments[1])
        return lambda data: _read_table(data, lambda key: read_value)
    if dataclasses.is_dataclass(kind):
        return _dataclass_reader(cast(type, kind))
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return _enum_reader(kind)
    raise TypeError(f"the codec does not know {kind!r}")


def _bounded_reader(plain: Any, bound: object) -> _Reader:
    """Return what reads a value and holds it to the bounds of its annotation."""
    if isinstance(bound, Range):
        return _number_reader(plain, bound)
    if isinstance(bound, RangesByName):
        return _sized_reader(_named_numbers_reader(bound), most=bound.most)
    if isinstance(bound, Length):
        return _sized_reader(_read_stored if plain is str else _reader(plain), most=bound.most)
    raise TypeError(f"the codec does not know the bound {bound!r}")


def _number_reader(plain: type, bound: Range) -> _Reader:
    read_plain, low, high = _SCALARS[plain], bound.low, bound.high

    def read(data: object) -> object:
        if type(data) is plain and low <= data <= high:  # type: ignore[operator] # it is a number
            return data  # most of what series hold
        number = cast(float, read_plain(data))
        if not bound.takes(number):
            raise Misfit(number, str(bound))
        return number

    return read


def _named_numbers_reader(bound: RangesByName) -> _Reader:
    """Return what reads a table of numbers, each within the bounds that its name has."""
    reader_of = functools.lru_cache(maxsize=4096)(lambda key: _number_reader(float, bound.of(key)))

    def checked_reader_of(key: str) -> _Reader:
        if len(key) > bound.most_characters:
            raise Misfit(key, f"a text of at most {bound.most_characters} characters as key")
        return reader_of(key)

    return lambda data: _read_table(data, checked_reader_of)


def _sized_reader(read_any: _Reader, *, most: int) -> _Reader:
    def read(data: object) -> object:
        if isinstance(data, str | list | tuple | dict) and len(data) > most:
            items = "characters" if isinstance(data, str) else "items"
            raise Misfit(f"{len(data)} of them", f"at most {most} {items}")
        return read_any(data)

    return read


def _read_list(data: object, read_item: _Reader) -> list[object]:
    if not isinstance(data, list | tuple):
        raise Misfit(data, "a list")
    items: list[object] = []
    try:
        for item in data:
            items.append(read_item(item))  # its length says which one did not fit
    except Misfit as misfit:
        raise misfit.below(len(items)) from None
    return items


def _read_table(data: object, reader_of: Callable[[str], _Reader]) -> dict[str, object]:
    """Read a table whose keys somebody else chose. `reader_of`: what reads the value of a key."""
    if not isinstance(data, dict):
        raise Misfit(data, "a table")
    items: dict[str, object] = {}
    for key, item in data.items():
        if not isinstance(key, str):
            raise Misfit(key, "a text as key")
        read_item = reader_of(key)
        try:
            items[storable(key)] = read_item(item)
        except Misfit as misfit:
            raise misfit.below(key) from None
    return items


def _dataclass_reader(kind: type) -> _Reader:
    hints = typing.get_type_hints(kind, include_extras=True)
    readers = {
        name: _read_unread if is_unread else _reader(hints[name])
        for name, is_unread in _fields(kind)
    }
    required = tuple(
        field.name
        for field in dataclasses.fields(kind)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    )

    def unknown(data: object) -> object:
        raise Misfit(data, f"one of the fields {', '.join(readers)}")

    def read(data: object) -> object:
        if not isinstance(data, dict):
            raise Misfit(data, "a table")
        values: dict[str, object] = {}
        for key, item in data.items():
            try:
                values[key] = readers.get(key, unknown)(item)
            except Misfit as misfit:
                raise misfit.below(str(key)) from None
        for name in required:
            if name not in values:
                raise Misfit(None, "a value: this field is required").below(name)
        return kind(**values)

    return read


def _read_unread(data: object) -> object:
    if not isinstance(data, dict):
        raise Misfit(data, "a table")
    return data


def _enum_reader(kind: type[enum.Enum]) -> _Reader:
    def read(data: object) -> object:
        try:
            return kind(data)
        except ValueError:
            allowed = ", ".join(repr(m.value) for m in kind)
            raise Misfit(data, f"one of {allowed}") from None

    return read


def _read_free(data: object, depth: int = 0) -> object:
    """Refuse in free JSON what JSON has not, what no database takes, and endless nesting."""
    if depth > MAX_DEPTH:
        raise Misfit(data, f"at most {MAX_DEPTH} levels")
    if isinstance(data, dict | list | tuple):
        read_item = functools.partial(_read_free, depth=depth + 1)
        if isinstance(data, dict):
            return _read_table(data, lambda key: read_item)
        return _read_list(data, read_item)
    if data is None or isinstance(data, bool):
        return data
    if isinstance(data, float):
        return _read_figure(data)
    return _read_int(data) if isinstance(data, int) else _read_stored(data)


def _read_float(data: object) -> float:
    if isinstance(data, bool) or not isinstance(data, int | float):
        raise Misfit(data, "a number")
    try:
        number = float(data)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise Misfit(data, "a finite number")
    return number


def _read_int(data: object) -> int:
    # bool is an int in Python, but 'true' is no count.
    if not isinstance(data, int) or isinstance(data, bool):
        raise Misfit(data, "a whole number")
    if not -(2**63) <= data < 2**63:
        raise Misfit(data, "a whole number of at most 64 bits")
    return data


def _read_str(data: object) -> str:
    if not isinstance(data, str):
        raise Misfit(data, "a text")
    if "\0" in data:
        raise Misfit(data, "a text without the character NUL")
    return data


def _read_stored(data: object) -> str:
    """Read a text that the store keeps or a page shows, such as a log: what has a `Length`."""
    if not isinstance(data, str):
        raise Misfit(data, "a text")
    return storable(data)


def _read_bool(data: object) -> bool:
    if not isinstance(data, bool):
        raise Misfit(data, "true or false")
    return data


_SCALARS: dict[object, _Reader] = {
    float: _read_float,
    int: _read_int,
    str: _read_str,
    bool: _read_bool,
    object: _read_free,
}
_read_figure = _number_reader(float, FINITE_FLOAT)


def storable(text: str) -> str:
    """Replace in a text what no database stores: NUL, and half a surrogate pair.

    The log of a crashed program may hold any, and Python writes a file name that is not UTF-8 in
    such halves; losing the character is better than the report.
    """
    if text.isascii() and "\0" not in text:  # nearly all that messages hold
        return text
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()
