"""Query parameters: one Pydantic model for each route checks its query and describes it.

Such models read forms, too, and ignore other fields, such as the CSRF token. A validator that
refuses a text raises a ValueError that says what was expected. For other errors the bounds of the
field say it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from flask import request
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    WithJsonSchema,
)
from werkzeug.datastructures import MultiDict

from farm.configuration.axes import AXES
from farm.configuration.axis import Axis
from farm.configuration.spec import MAX_WORLD_SIZE
from farm.configuration.sweep import CASE_OPTIONS
from farm.errors import InvalidSpec
from farm.values.fields import (
    Amount,
    Boolean,
    OneOf,
    Type,
    WholeNumber,
    WholeNumberOrWord,
    Word,
    parse_number,
    parse_whole_number,
)
from web import request_body
from web.value_types import PlainSchema, annotation, bounds

_T = TypeVar("_T")
_Q = TypeVar("_Q", bound="Parameters")
Args = MultiDict[str, str]

MAX_PAGE_SIZE = 1000
_MOST_PAGES = 1_000_000
_MAX_NAME_CHARACTERS = 200
# Of no name: controls and ends of lines. Written so that JSON Schema takes it too.
_UNPRINTABLE = r"\x00-\x1f\x7f-\x9f\u2028\u2029"
_IN_NAME, _IN_ITEM = f"[^{_UNPRINTABLE}]", f"[^,{_UNPRINTABLE}]"
_NAME = re.compile(f"{_IN_NAME}{{1,{_MAX_NAME_CHARACTERS}}}")


def _whole(text: str) -> int | None:
    has_zero_in_front = text[:1] == "0" and text[1:2].isdigit()
    return None if has_zero_in_front else parse_whole_number(text)


def _items(text: str) -> list[str]:
    if not _NAME.fullmatch(text):
        raise ValueError(f"a text of 1 to {_MAX_NAME_CHARACTERS} printable characters")
    items = [item.strip(" ") for item in text.split(",")]
    if not all(items):
        raise ValueError("names with commas between them")
    return items


def _natural(expected: str) -> BeforeValidator:
    def read_it(text: str) -> int:
        value = request_body.natural(text)
        if value is None:
            raise ValueError(expected)
        return value

    return BeforeValidator(read_it)


# After the bounds in an annotation, so that these are of the number.
WHOLE = BeforeValidator(_whole)
NUMBER = BeforeValidator(parse_number)
QueryText = Annotated[
    str,
    StringConstraints(pattern=f"^{_IN_NAME}+$", min_length=1, max_length=_MAX_NAME_CHARACTERS),
]
# With commas between.
Listed = Annotated[tuple[_T, ...], Field(min_length=1), BeforeValidator(_items)]
QueryTexts = Listed[
    Annotated[
        str,
        StringConstraints(
            pattern=f"^{_IN_ITEM}*[^, {_UNPRINTABLE}]{_IN_ITEM}*$",
            max_length=_MAX_NAME_CHARACTERS,
        ),
    ]
]
StrippedText = Annotated[str, AfterValidator(str.strip)]
Ticked = Annotated[bool, BeforeValidator(lambda text: text == "yes")]
_OF_ROW = Field(ge=1, le=request_body.LARGEST_ID)
RowId = Annotated[int, _OF_ROW, _natural("an id, a whole number from 1")]
_AttemptNumber = Annotated[int, _OF_ROW, _natural("an attempt's number, from 1")]
RankNumber = Annotated[int, Field(ge=0, le=MAX_WORLD_SIZE), WHOLE]
PageNumber = Annotated[int, Field(ge=1, le=_MOST_PAGES), WHOLE]
_Cursor = Annotated[
    int,
    _natural("a cursor as `next` gave it"),
    WithJsonSchema({"type": "string", "pattern": "^[1-9][0-9]{0,17}$"}),
]


_DECLARED: Mapping[str, Type] = {
    **{axis.name: axis.type for axis in AXES},
    **{option.name: option.type for option in CASE_OPTIONS},
}


def of_axis(axis: Axis) -> Any:
    """Return the type of a value of an axis, in the unit of its name."""
    match axis.type:
        case WholeNumber():
            return Annotated[annotation(axis.type), WHOLE]
        case Amount():
            return Annotated[annotation(axis.type), NUMBER]
        case Boolean():
            return Annotated[bool, BeforeValidator(Boolean.of)]
        case OneOf() | Word():
            return annotation(axis.type)
    return QueryText


def bounds_of(name: str) -> Any:
    """Return the limits of a number of sweep files, an axis or an option of a case."""
    of = _DECLARED[name]
    if isinstance(of, WholeNumberOrWord):
        of = of.whole
    assert isinstance(of, WholeNumber | Amount)
    return bounds(of)


class Parameters(BaseModel):
    """The parameters of one route, each given at most once; this one has none."""

    model_config = ConfigDict(frozen=True)


class LimitParameters(Parameters):
    """How much of a list."""

    limit: Annotated[
        int,
        Field(ge=1, le=MAX_PAGE_SIZE),
        _natural(f"a whole number from 1 to {MAX_PAGE_SIZE}"),
    ] = Field(100, description="The most items of a page.")


class PageParameters(LimitParameters):
    """Which page of a list."""

    cursor: _Cursor | None = Field(
        None, description="Where the page begins: `next` of the page before it."
    )


class AttemptParameters(Parameters):
    """Which attempt of a job."""

    attempt: _AttemptNumber | None = Field(
        None, description="The number of an attempt, from 1; the last one by default."
    )


class NextParameters(Parameters):
    """Which page to go to then."""

    next: str = ""


class RankParameters(AttemptParameters):
    """Which rank of an attempt."""

    rank: RankNumber | None = Field(None, description="A rank of it; 0 by default.")


def read(kind: type[_Q], *, is_empty_absent: bool = False) -> _Q:
    """Read the query of this request; `is_empty_absent`: leave out what a form has sent empty.

    Raises:
        InvalidSpec: a parameter is not one of these, is given twice, or does not fit.
    """
    args = query(*names(kind))
    if is_empty_absent:
        args = MultiDict({name: text for name, text in args.items() if text.strip()})
    return read_from(kind, args)


def query(*allowed: str) -> MultiDict[str, str]:
    """Return the query, with no other than the allowed parameters, each at most once.

    Raises:
        InvalidSpec: a parameter is unknown, or there twice.
    """
    for name, values in request.args.lists():
        if name not in allowed:
            shown = ", ".join(allowed) or "none at all"
            raise InvalidSpec(name, values[0], f"no parameter but {shown}")
        if len(values) > 1:
            raise InvalidSpec(name, values, "a parameter given once")
    return request.args


def read_from(kind: type[_Q], args: Args) -> _Q:
    """Read the fields of `kind` alone. Raises InvalidSpec: one does not fit."""
    try:
        return kind.model_validate(args.to_dict())
    except ValidationError as error:
        raise _refusal(kind, args, error.errors(include_url=False)[0]) from None


def names(kind: type[Parameters]) -> list[str]:
    """Return the names of the parameters, as an address has them."""
    return [field.alias or name for name, field in kind.model_fields.items()]


def parameter_objects(kind: type[Parameters]) -> list[dict[str, object]]:
    """Return the parameter objects of OpenAPI."""
    schemas = _schemas(kind)
    return [
        {
            "name": name,
            "in": "query",
            "description": field.description,
            "required": field.is_required(),
            "schema": schemas[name],
            # A list is one text, with commas between.
            **({"explode": False} if schemas[name]["type"] == "array" else {}),
        }
        for name, field in zip(names(kind), kind.model_fields.values(), strict=True)
    ]


class _Schema(PlainSchema):
    """A parameter that is absent has no value, not null."""

    def nullable_schema(self, schema: Any) -> dict[str, Any]:
        return self.generate_inner(schema["schema"])


@functools.cache
def _schemas(kind: type[Parameters]) -> Mapping[str, Mapping[str, Any]]:
    """Return the schema of each parameter by its name."""
    whole = kind.model_json_schema(schema_generator=_Schema)
    found: dict[str, dict[str, Any]] = whole.get("properties", {})
    for schema in found.values():
        schema.pop("description", None)
        if "$ref" in schema:
            referred = whole["$defs"][schema.pop("$ref").rpartition("/")[2]]
            schema |= {"type": referred["type"], "enum": referred["enum"]}
    return found


def _refusal(kind: type[Parameters], args: Args, error: Mapping[str, Any]) -> InvalidSpec:
    name, *index = error["loc"]
    text = args.get(str(name))
    if text is None:
        return InvalidSpec(str(name), None, "a value: this parameter is required")
    if error["type"] == "value_error":
        return InvalidSpec(str(name), text, str(error["ctx"]["error"]))
    wrong = _items(text)[int(index[0])] if index else text
    return InvalidSpec(str(name), wrong, _expected(_schemas(kind)[str(name)]))


def _expected(schema: Mapping[str, Any]) -> str:
    """Say what a schema takes."""
    match schema:
        case {"type": "boolean"}:
            return "true or false"
        case {"enum": values}:
            return f"one of {', '.join(values)}"
        case {"type": "integer", "minimum": low, "maximum": high}:
            return f"a whole number from {low} to {high}"
        case {"type": "number"}:
            above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
            low = f"from {schema['minimum']:g}" if above is None else f"above {above:g}"
            high = f"{schema['maximum']:g}" if below is None else f"below {below:g}"
            return f"a number {low} to {high}"
        case {"items": {"type": "integer", "minimum": low, "maximum": high}}:
            return f"whole numbers from {low} to {high} with commas between"
        case {"items": items}:
            return _expected(items)
    return f"a text of 1 to {schema['maxLength']} printable characters"
