"""Types of request bodies for the OpenAPI document; `farm.configuration.sweep` validates."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from farm.configuration.axes import AXES
from farm.configuration.scripts import CASE_KEYS, TOLD_BY_SCRIPT
from farm.configuration.sweep import (
    BUDGET,
    CASE_OPTIONS,
    MACHINE_HOURS,
    PRECISION_OPTIONS,
    REPETITIONS,
    SWEEP_OPTIONS,
    SweepOption,
)
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
    Whole,
    WholeOrWord,
    Word,
)

_NAME = Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARACTERS, pattern=r"^[!-~]+$")]


# Types are made here as values, which type checkers cannot follow.
_annotated: Any = Annotated
_list: Any = list
_not_required: Any = NotRequired
_literal: Any = Literal
_typed_dict: Any = TypedDict


def _annotation(of: Type) -> Any:
    """Return the type of one value, as Pydantic describes it."""
    match of:
        case Name(pattern=pattern):
            return _annotated[str, Field(pattern=f"^{pattern}$")] if pattern else _NAME
        case Whole(low=low, high=high):
            return _annotated[int, Field(ge=low, le=high)]
        case WholeOrWord(whole=whole, word=word):
            return _annotation(whole) | _literal[word]
        case Amount():
            bounds: dict[str, Any] = {
                "gt" if of.is_above_low else "ge": of.low,
                "lt" if of.is_below_high else "le": of.high,
            }
            return _annotated[float, Field(**bounds)]
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
            return _annotated[dict[_NAME, _NAME], Field(max_length=MAX_LABELS)]


def _axis(of: Type) -> Any:
    """Return the type of a list of at least one value, or of a single one."""
    value = _annotation(of)
    return value | _annotated[_list[value], Field(min_length=1)]


def _optional(options: tuple[SweepOption, ...]) -> dict[str, Any]:
    return {option.name: _not_required[_annotation(option.type)] for option in options}


def _object(name: str, meaning: str, fields: dict[str, Any]) -> Any:
    made = _typed_dict(name, fields)
    made.__doc__ = meaning
    return with_config(ConfigDict(extra="forbid"))(made)


SweepCase = _object(
    "SweepCase",
    "The cross product of its lists. Either `steps` or `epochs`; either `script`, or `model`, "
    "`dataset` and `strategy`.",
    {
        **{
            axis.name: _axis(axis.type)
            if axis.is_required and axis.name not in TOLD_BY_SCRIPT
            else _not_required[_axis(axis.type)]
            for axis in AXES
        },
        **{key: _not_required[Any] for key in CASE_KEYS},
        **_optional(CASE_OPTIONS),
    },
)
SweepFile = _object(
    "SweepFile",
    "A sweep file as JSON.",
    {
        "name": _NAME,
        "repetitions": _not_required[_annotation(REPETITIONS)],
        **_optional((*PRECISION_OPTIONS, *SWEEP_OPTIONS)),
        "case": _annotated[_list[SweepCase], Field(min_length=1)],
    },
)


NewBudget = _object(
    "NewBudget",
    "A sweep's budget from now on, in machine hours; without it the budget stays.",
    {BUDGET: _not_required[_annotation(MACHINE_HOURS)]},
)


@with_config(ConfigDict(extra="forbid"))
class Nothing(TypedDict):
    """No fields: the address says all about the action."""
