"""Describes routes for the OpenAPI document, by decorators on their views.

A route's answer is a type of `web.api.schema.answers`, of which the document takes the JSON Schema.
Nothing here runs for a request: what is described is read and written by the route itself, and
tests hold the two together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, TypeVar

from apiflask import APIBlueprint

from web.parameters import Parameter

_ATTRIBUTE = "described"
JSON = "application/json"
PROBLEM_JSON = "application/problem+json"

_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Body:
    """What may be posted. `kind`: a type of `bodies`, as JSON; `is_required`: or nothing at all."""

    kind: type | None
    is_required: bool = True
    other_types: Mapping[str, str] = field(default_factory=dict)  # content type: its meaning


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """`answer`: a type, or None where it is no JSON. `refusals`: beside those of every route."""

    answer: type | None
    status: HTTPStatus
    meaning: str
    content_type: str
    parameters: Sequence[Parameter[Any]]
    body: Body | None
    refusals: Mapping[HTTPStatus, str]
    is_cacheable: bool


def described(
    bp: APIBlueprint,
    answer: type | None,
    *,
    meaning: str = "As asked.",
    status: HTTPStatus = HTTPStatus.OK,
    content_type: str = JSON,
    parameters: Sequence[Parameter[Any]] = (),
    body: Body | None = None,
    refusals: Mapping[HTTPStatus, str] | None = None,
    is_cacheable: bool = False,
) -> Callable[[_F], _F]:
    """Describe a route of the blueprint; goes below its address.

    `is_cacheable`: it has an ETag, and answers 304 to who has it already.
    """

    def describe(view: _F) -> _F:
        description = Description(
            answer=answer,
            status=status,
            meaning=meaning,
            content_type=content_type,
            parameters=parameters,
            body=body,
            refusals=refusals or {},
            is_cacheable=is_cacheable,
        )
        setattr(view, _ATTRIBUTE, description)
        resource = bp.name.removeprefix("api_")
        # Responses are filled in once the whole document is known; this one makes it a part of it.
        marked = bp.doc(
            operation_id=f"{resource}_{view.__name__}", responses={status.value: meaning}
        )
        documented: _F = marked(view)
        return documented

    return describe


def description_of(view: Callable[..., Any]) -> Description | None:
    """Return what was said of a route; None: nothing."""
    found = getattr(view, _ATTRIBUTE, None)
    assert found is None or isinstance(found, Description)
    return found
