"""Declares query parameters: how each is parsed, and its description for the API."""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from werkzeug.datastructures import MultiDict

from farm.configuration.axes import Axis
from farm.configuration.spec import MAX_WORLD_SIZE
from farm.errors import InvalidSpec
from farm.values.fields import Amount, OneOf, Whole
from web import parameters, received

T = TypeVar("T")
_E = TypeVar("_E", bound=enum.Enum)

Args = MultiDict[str, str]
_OF_NAME, _OF_LIST = f"[^{received.UNPRINTABLE}]", f"[^,{received.UNPRINTABLE}]"
_LISTED = f"{_OF_LIST}*[^, {received.UNPRINTABLE}]{_OF_LIST}*"
_COUNTED = " *[1-9][0-9]* *"
NAME_SCHEMA: Mapping[str, object] = {
    "type": "string",
    "pattern": f"^{_OF_NAME}+$",
    "minLength": 1,
    "maxLength": received.MAX_NAME_CHARACTERS,
}
ID_SCHEMA: Mapping[str, object] = {"type": "integer", "minimum": 1, "maximum": received.LARGEST_ID}


@dataclass(frozen=True, slots=True)
class Parameter(Generic[T]):
    """`schema`: JSON Schema of the values that `read` takes. `meaning`: for who asks."""

    name: str
    meaning: str
    schema: Mapping[str, object]
    read: Callable[[Args], T]
    is_required: bool = False

    def described(self) -> dict[str, object]:
        """Return the parameter object of OpenAPI."""
        return {
            "name": self.name,
            "in": "query",
            "description": self.meaning,
            "required": self.is_required,
            "schema": dict(self.schema),
        }


class Given:
    """The parameters of one request, read and checked; ask for each by its declaration."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self._values = values

    def __getitem__(self, parameter: Parameter[T]) -> T:
        return cast(T, self._values[parameter.name])


def read(parameters: Sequence[Parameter[Any]]) -> Given:
    """Read the query of this request.

    Raises:
        InvalidSpec: a parameter is not one of these, is given twice, or does not fit.
    """
    return read_from(received.query(*(parameter.name for parameter in parameters)), parameters)


def read_from(args: Args, parameters: Sequence[Parameter[Any]]) -> Given:
    """Read what was taken from a query already. Raises InvalidSpec: a parameter does not fit."""
    return Given({parameter.name: parameter.read(args) for parameter in parameters})


def row_id(name: str, meaning: str, *, expected: str | None = None) -> Parameter[int | None]:
    """Declare the id of a row."""

    def read_it(args: Args) -> int | None:
        if expected is None:
            return received.optional_id(args, name)
        return received.optional_id(args, name, expected=expected)

    return Parameter(name, meaning, ID_SCHEMA, read_it)


def text(name: str, meaning: str) -> Parameter[str | None]:
    """Declare a name."""
    return Parameter(name, meaning, NAME_SCHEMA, lambda args: received.short_text(args, name))


def texts(name: str, meaning: str) -> Parameter[tuple[str, ...]]:
    """Declare names with commas between them."""
    schema = {**NAME_SCHEMA, "pattern": f"^{_LISTED}(,{_LISTED})*$"}
    return Parameter(name, meaning, schema, lambda args: received.texts(args, name))


def whole(name: str, meaning: str, *, high: int, low: int = 1) -> Parameter[int | None]:
    """Declare a whole number within the bounds, both included."""
    schema = {"type": "integer", "minimum": low, "maximum": high}
    return Parameter(
        name, meaning, schema, lambda args: received.whole(args, name, low=low, high=high)
    )


def required_whole(name: str, meaning: str, *, high: int) -> Parameter[int]:
    """Declare a whole number from 1 that must be there."""

    def read_it(args: Args) -> int:
        value = received.whole(args, name, high=high)
        if value is None:
            raise InvalidSpec(name, None, "a value: this parameter is required")
        return value

    schema = {"type": "integer", "minimum": 1, "maximum": high}
    return Parameter(name, meaning, schema, read_it, is_required=True)


def wholes(name: str, meaning: str, *, high: int) -> Parameter[tuple[int, ...]]:
    """Declare whole numbers from 1 with commas between them."""
    schema = {**NAME_SCHEMA, "pattern": f"^{_COUNTED}(,{_COUNTED})*$"}
    return Parameter(name, meaning, schema, lambda args: received.wholes(args, name, high=high))


def number(
    name: str, meaning: str, *, low: float, high: float, is_above_low: bool = False
) -> Parameter[float | None]:
    """Declare a number within the bounds, both included; `is_above_low`: who uses it refuses it."""
    least = "exclusiveMinimum" if is_above_low else "minimum"
    schema = {"type": "number", least: low, "maximum": high}
    return Parameter(
        name,
        meaning,
        schema,
        lambda args: received.number(args, name, low=low, high=high, default=None),
    )


def of_axis(axis: Axis) -> Parameter[float | None]:
    """Declare an axis of the network, in the unit of its name; None: as where nobody changes it."""
    kind = axis.type
    assert isinstance(kind, Amount)
    declared = _of_amount(axis.name, f"{axis.meaning[0].upper()}{axis.meaning[1:]}.", kind)
    if axis.absent is None:
        return declared
    return dataclasses.replace(declared, schema={**declared.schema, "default": axis.absent})


def exactly(axis: Axis) -> Parameter[Any]:
    """Declare a value of an axis, in the unit of its name; None leaves it open."""
    meaning = f"With this value: {axis.meaning}."
    match axis.type:
        case Whole(low=low, high=high):
            return whole(axis.name, meaning, low=low, high=high)
        case Amount() as kind:
            return _of_amount(axis.name, meaning, kind)
        case OneOf(kind=kind):
            return one_of(axis.name, meaning, kind)
    return text(axis.name, meaning)


def _of_amount(name: str, meaning: str, kind: Amount) -> Parameter[float | None]:
    read = functools.partial(received.number, name=name, low=kind.low, high=kind.high, default=None)
    least = "exclusiveMinimum" if kind.is_above_low else "minimum"
    most = "exclusiveMaximum" if kind.is_below_high else "maximum"
    return Parameter(name, meaning, {"type": "number", least: kind.low, most: kind.high}, read)


def numbers(name: str, meaning: str, *, low: float, high: float) -> Parameter[tuple[float, ...]]:
    """Declare numbers with commas between them, each within the bounds, both included."""

    def read_it(args: Args) -> tuple[float, ...]:
        # Each as if it stood alone, so that one message says what a number is.
        alone = (MultiDict({name: item}) for item in received.texts(args, name))
        values = (received.number(one, name, low=low, high=high, default=None) for one in alone)
        return tuple(value for value in values if value is not None)

    pattern = r"^[0-9]+(\.[0-9]+)?(,[0-9]+(\.[0-9]+)?)*$"
    schema = {**NAME_SCHEMA, "pattern": pattern}
    return Parameter(name, meaning, schema, read_it)


def amount(name: str, meaning: str, *, high: float, default: float = 0.0) -> Parameter[float]:
    """Declare a number of at least 0 that has a default."""

    def read_it(args: Args) -> float:
        value = received.number(args, name, low=0.0, high=high, default=None)
        return default if value is None else value

    schema = {"type": "number", "minimum": 0, "maximum": high, "default": default}
    return Parameter(name, meaning, schema, read_it)


def one_of(name: str, meaning: str, kind: type[_E]) -> Parameter[_E | None]:
    """Declare one of an Enum's values."""
    schema = {"type": "string", "enum": [member.value for member in kind]}
    return Parameter(name, meaning, schema, lambda args: received.choice(args, name, kind))


LIMIT = Parameter(
    "limit",
    "The most items of a page.",
    {
        "type": "integer",
        "minimum": 1,
        "maximum": received.MAX_PAGE_SIZE,
        "default": received.DEFAULT_PAGE_SIZE,
    },
    received.page_size,
)
CURSOR = Parameter(
    "cursor",
    "Where the page begins: `next` of the page before it.",
    {"type": "string", "pattern": "^[1-9][0-9]{0,17}$"},
    received.cursor,
)


ATTEMPT = parameters.row_id(
    "attempt",
    "The number of an attempt, from 1; the last one by default.",
    expected="an attempt's number, from 1",
)
RANK = parameters.whole("rank", "A rank of it; 0 by default.", low=0, high=MAX_WORLD_SIZE)
