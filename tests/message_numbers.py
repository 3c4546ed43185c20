"""Every number of every message: where it is, its bounds, and a whole message to put it into."""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from typing import Any

from farm.values.codec import UNDECODED
from farm.values.ranges import Range, RangesByName

Path = tuple[str | int, ...]


@dataclasses.dataclass(frozen=True)
class NumberField:
    """`bound`: None where the field declares none."""

    path: Path
    number: type
    bound: Range | None

    @property
    def name(self) -> str:
        return ".".join(map(str, self.path))


def example(kind: Any) -> Any:
    """Return the JSON of a value of the kind with every field there, each number in bounds."""
    plain, bound = _parts(kind)
    if isinstance(bound, RangesByName):
        return {f"x{ending}": 1.0 for ending, _ in bound.by_ending}
    if plain in (int, float):
        return plain(1) if bound is None or bound.takes(1) else plain(bound.low)
    if plain is str:
        return "x"
    if plain is bool:
        return True
    if plain is object:
        return 1.0
    if typing.get_origin(plain) is tuple:
        return [example(typing.get_args(plain)[0])]
    if typing.get_origin(plain) is dict:
        return {"x": example(typing.get_args(plain)[1])}
    if isinstance(plain, type) and issubclass(plain, enum.Enum):
        return next(iter(plain)).value
    return {
        name: {} if _is_unread(plain, name) else example(hint)
        for name, hint in typing.get_type_hints(plain, include_extras=True).items()
    }


def number_fields(kind: Any, path: Path = ()) -> list[NumberField]:
    """Return every number in what `example` makes."""
    plain, bound = _parts(kind)
    if isinstance(bound, RangesByName):
        return [NumberField((*path, f"x{end}"), float, its) for end, its in bound.by_ending]
    if plain in (int, float):
        return [NumberField(path, plain, bound)]
    if typing.get_origin(plain) is tuple:
        return number_fields(typing.get_args(plain)[0], (*path, 0))
    if typing.get_origin(plain) is dict:
        return number_fields(typing.get_args(plain)[1], (*path, "x"))
    if not dataclasses.is_dataclass(plain):
        return []
    return [
        found
        for name, hint in typing.get_type_hints(plain, include_extras=True).items()
        if not _is_unread(plain, name)
        for found in number_fields(hint, (*path, name))
    ]


def replaced(message: Any, path: Path, value: object) -> Any:
    """Return the message with another value at the path."""
    if not path:
        return value
    first, *rest = path
    inner = replaced(message[first], tuple(rest), value)
    if isinstance(message, list):
        return [inner if place == first else item for place, item in enumerate(message)]
    return {**message, first: inner}


def _is_unread(kind: Any, name: str) -> bool:
    [field] = [field for field in dataclasses.fields(kind) if field.name == name]
    return UNDECODED.items() <= field.metadata.items()


def _parts(kind: Any) -> tuple[Any, Any]:
    """Return the type without None and annotations, and its bound."""
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        [kind] = [member for member in typing.get_args(kind) if member is not type(None)]
    if typing.get_origin(kind) is typing.Annotated:
        return typing.get_args(kind)
    return kind, None
