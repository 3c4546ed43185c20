"""Pydantic models of request bodies, which check them and describe them in OpenAPI.

`farm.configuration.sweep` checks a sweep. The types of a sweep here are generated from the same
declarations.
"""

from __future__ import annotations

from typing import Annotated, Any, NotRequired

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, with_config
from typing_extensions import TypedDict

from farm.configuration.axes import AXES
from farm.configuration.scripts import CASE_KEYS, SET_BY_SCRIPT
from farm.configuration.sweep import (
    BUDGET,
    CASE_OPTIONS,
    MACHINE_HOURS,
    PRECISION_OPTIONS,
    REPETITIONS,
    SWEEP_OPTIONS,
    SweepOption,
)
from farm.values.fields import Type
from web.value_types import ApiName, annotation

# Types are made here as values, which type checkers cannot follow.
_annotated: Any = Annotated
_list: Any = list
_not_required: Any = NotRequired
_typed_dict: Any = TypedDict


def _axis(of: Type) -> Any:
    """Return the type of a list of at least one value, or of a single one."""
    value = annotation(of)
    return value | _annotated[_list[value], Field(min_length=1)]


def _optional(options: tuple[SweepOption, ...]) -> dict[str, Any]:
    return {option.name: _not_required[annotation(option.type)] for option in options}


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
            if axis.is_required and axis.name not in SET_BY_SCRIPT
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
        "name": ApiName,
        "repetitions": _not_required[annotation(REPETITIONS)],
        **_optional((*PRECISION_OPTIONS, *SWEEP_OPTIONS)),
        "case": _annotated[_list[SweepCase], Field(min_length=1)],
    },
)


class Nothing(BaseModel):
    """No fields: the address determines the action."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class NewBudget(BaseModel):
    """A sweep's budget from now on, in machine hours; without it the budget stays."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    budget_machine_s: Annotated[
        float | None,
        PlainValidator(
            lambda value: MACHINE_HOURS.read(value, BUDGET),
            json_schema_input_type=annotation(MACHINE_HOURS),
        ),
    ] = Field(None, alias=BUDGET)
