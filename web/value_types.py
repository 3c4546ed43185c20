"""Pydantic types for the values that people write, and the JSON Schema of these types."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.json_schema import GenerateJsonSchema

from farm.values.fields import (
    MAX_LABELS,
    MAX_NAME_CHARACTERS,
    Amount,
    Boolean,
    Labels,
    Name,
    OneOf,
    Type,
    WebAddresses,
    WholeNumber,
    WholeNumberOrWord,
    Word,
)

ApiName = Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARACTERS, pattern=r"^[!-~]+$")]

# Types are made here as values, which type checkers cannot follow.
_annotated: Any = Annotated
_list: Any = list
_literal: Any = Literal


def annotation(of: Type) -> Any:
    """Return the type of one value, as Pydantic describes it."""
    match of:
        case Name(pattern=pattern):
            return _annotated[str, Field(pattern=f"^{pattern}$")] if pattern else ApiName
        case WholeNumber():
            return _annotated[int, bounds(of)]
        case WholeNumberOrWord(whole=whole, word=word):
            return annotation(whole) | _literal[word]
        case Amount():
            return _annotated[float, bounds(of)]
        case OneOf(kind=kind):
            return kind
        case Word(words=words):
            return _literal[words]
        case Boolean():
            return bool
        case WebAddresses(most=most, most_characters=length):
            address = _annotated[str, Field(max_length=length)]
            return address | _annotated[_list[address], Field(max_length=most)]
        case Labels():
            return _annotated[dict[ApiName, ApiName], Field(max_length=MAX_LABELS)]


def bounds(of: WholeNumber | Amount) -> Any:
    """Return the limits of a number, for an annotation."""
    if isinstance(of, WholeNumber):
        return Field(ge=of.low, le=of.high)
    limits: dict[str, Any] = {
        "gt" if of.is_above_low else "ge": of.low,
        "lt" if of.is_below_high else "le": of.high,
    }
    return Field(**limits)


class PlainSchema(GenerateJsonSchema):
    """JSON Schema without titles that repeat names, and without defaults that say nothing."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def default_schema(self, schema: Any) -> dict[str, Any]:
        if "default" in schema and schema["default"] in (None, (), {}):
            return self.generate_inner(schema["schema"])
        return super().default_schema(schema)
