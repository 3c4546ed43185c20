"""Builds the OpenAPI document from the views' descriptions, and serves a page of it.

The decorator `described` describes a view. The document contains the JSON Schema of the models that
check a route's parameters and body, and of its answer's type in `web.api.schema.answers`. A route
writes its answer itself, and tests compare the answers with these types.

The page is Swagger UI under the strict content policy. A small script of ours starts it, and
nothing is loaded from elsewhere. The only exception that the policy needs is `data:` for the images
in its style sheet.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar, cast

from apiflask import APIBlueprint, APIFlask
from flask import Response, current_app, make_response, render_template, send_file
from flask.typing import ResponseReturnValue
from pydantic import TypeAdapter

from farm.errors import NotFound
from farm.keys.api_tokens import Scope
from farm.processes.cache import Cache
from farm.store.measurements.imports import MAX_ORIGIN_CHARACTERS
from web import etags, parameters, request_body
from web.access.authorization import CONTENT_POLICY
from web.access.scopes import scope_of
from web.api import idempotency
from web.api.schema.answers import OpenApi, Problem
from web.parameters import Parameters
from web.value_types import PlainSchema

_ATTRIBUTE = "described"
JSON = "application/json"
PROBLEM_JSON = "application/problem+json"

_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Body:
    """A request body. `kind`: a type of `bodies`, as JSON. `is_required`: it may not be empty."""

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
    query: type[Parameters]
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
    query: type[Parameters] = Parameters,
    body: Body | None = None,
    refusals: Mapping[HTTPStatus, str] | None = None,
    is_cacheable: bool = False,
) -> Callable[[_F], _F]:
    """Describe a route of the blueprint; goes below its address.

    `is_cacheable`: its answer has an ETag, and is 304 for clients that have the current one.
    """

    def describe(view: _F) -> _F:
        description = Description(
            answer=answer,
            status=status,
            meaning=meaning,
            content_type=content_type,
            query=query,
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


bp = APIBlueprint("api_document", __name__, url_prefix="/api/v1", tag="This document")

_KEY = "benchfarm_openapi"
_CHANGING = ("post", "put", "patch", "delete")
_REF = "#/components/schemas/{model}"
_ID_SCHEMA = {"type": "integer", "minimum": 1, "maximum": request_body.LARGEST_ID}
_TEXT_SCHEMA = {"type": "string", "minLength": 1}
_PATH_PARAMETERS: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "sweep_id": ("The id of a sweep.", _ID_SCHEMA),
    "job_id": ("The id of a job.", _ID_SCHEMA),
    "agent_id": (
        "The id of an agent.",
        {**_TEXT_SCHEMA, "maxLength": request_body.MAX_AGENT_CHARACTERS},
    ),
    "origin": ("The name of an origin.", {**_TEXT_SCHEMA, "maxLength": MAX_ORIGIN_CHARACTERS}),
}
# What every route may answer, and what one that changes something may answer beside that.
_REFUSALS: Mapping[HTTPStatus, str] = {
    HTTPStatus.BAD_REQUEST: "The query does not fit: `field` names the parameter.",
    HTTPStatus.UNAUTHORIZED: "The token is missing, wrong, revoked or expired.",
    HTTPStatus.FORBIDDEN: "The token has not this scope, or another site's page asks.",
    HTTPStatus.MISDIRECTED_REQUEST: "Without a token the server answers to loopback names only.",
    HTTPStatus.TOO_MANY_REQUESTS: "Too many wrong tokens, changes or long answers in a minute.",
    HTTPStatus.SERVICE_UNAVAILABLE: "The store does not answer.",
}
_REFUSALS_OF_CHANGES: Mapping[HTTPStatus, str] = {
    HTTPStatus.BAD_REQUEST: "The body is no JSON.",
    HTTPStatus.FORBIDDEN: (
        "The token has not this scope, or the request comes from another site's page or without "
        "its CSRF token."
    ),
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "The body is larger than 1 MiB.",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "The content type is none of those that are taken.",
    HTTPStatus.UNPROCESSABLE_ENTITY: "The body is invalid: `field` is the field at fault.",
}
_UNDER_WAY = (
    "A request with this `Idempotency-Key` is being carried out; see `Retry-After`. Without "
    "`Retry-After` it was carried out, and its answer was not kept."
)
_SECURITY_SCHEMES = {
    "token": {"type": "http", "scheme": "bearer", "description": "A token of the farm."},
    "session": {"type": "apiKey", "in": "cookie", "name": "", "description": "Of a sign-in."},
    "csrf": {
        "type": "apiKey",
        "in": "header",
        "name": "X-CSRF-Token",
        "description": "Goes with the session: the token that its pages hold.",
    },
}
_ABOUT = (
    "You submit sweeps, jobs measure them, and recommendations use the measurements. "
    "Units are in the names; null is what is not known. Lists answer `items` and `next`, the "
    "cursor of the page after it. Errors are `application/problem+json`. An open farm, on loopback "
    "without any token, asks nobody for one; else the token needs the scope that is named."
)

_SWAGGER_VERSION = version("flask-openapi3-swagger")
_SWAGGER_FILES = {
    "swagger-ui.css": "css/swagger-ui.css",
    "swagger-ui-bundle.js": "js/swagger-ui-bundle.js",
}
_A_YEAR_S = 365 * 86400
_DOCS_POLICY = f"{CONTENT_POLICY}; img-src 'self' data:"


def install(app: APIFlask) -> None:
    """Add the OpenAPI document and its page to the app."""
    app.extensions[_KEY] = Cache(most=1)
    session = {**_SECURITY_SCHEMES["session"], "name": app.config["SESSION_COOKIE_NAME"]}
    app.config.update(
        DESCRIPTION=_ABOUT,
        AUTO_200_RESPONSE=False,  # a route that says nothing of itself is not in the document
        AUTO_404_RESPONSE=False,
        AUTO_SERVERS=False,
        SECURITY_SCHEMES={**_SECURITY_SCHEMES, "session": session},
    )

    @app.spec_processor
    def complete(document: dict[str, Any] | str) -> dict[str, Any] | str:
        assert isinstance(document, dict)  # a text only where YAML is asked for
        return _complete(app, document)


@bp.get("/openapi.json")
@described(bp, OpenApi, is_cacheable=True)
def get_openapi() -> ResponseReturnValue:
    """Return the OpenAPI 3.1 document of this API."""
    parameters.query()
    return etags.answer(Response(document_text(), content_type=JSON))


@bp.get("/docs")
def get_docs() -> ResponseReturnValue:
    """Show this API's document as a page on which requests can be tried."""
    parameters.query()
    page = make_response(render_template("docs.html", swagger_version=_SWAGGER_VERSION))
    page.headers["Content-Security-Policy"] = _DOCS_POLICY
    return page


@bp.get("/docs/<wheel_version>/<name>")
def get_file(wheel_version: str, name: str) -> ResponseReturnValue:
    """Serve a file of the wheel; its address has the version, so it may be kept for ever."""
    if wheel_version != _SWAGGER_VERSION or name not in _SWAGGER_FILES:
        raise NotFound(f"{name[:80]!r}: there is no such file")
    folder = Path(str(files("flask_openapi3_swagger"))) / "templates" / "swagger"
    response = send_file(folder / _SWAGGER_FILES[name], max_age=_A_YEAR_S)
    response.cache_control.immutable = True
    return response


def document_text() -> str:
    """Return the document of the app that serves this request."""
    cache = cast(Cache, current_app.extensions[_KEY])
    app = cast(APIFlask, current_app)
    return cache.get(_KEY, lambda _: json.dumps(app.spec), is_good=lambda _: True)


def _complete(app: APIFlask, document: dict[str, Any]) -> dict[str, Any]:
    """Add the descriptions of the routes."""
    views: dict[str, Callable[..., Any]] = {}  # by the id of their operation
    for endpoint, view in app.view_functions.items():
        if hasattr(view, _ATTRIBUTE):
            blueprint, _, name = endpoint.rpartition(".")
            views[f"{blueprint.removeprefix('api_')}_{name}"] = view
    kinds: dict[str, tuple[type, bool]] = {"Problem": (Problem, False)}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            view = views[operation["operationId"]]
            description: Description = getattr(view, _ATTRIBUTE)
            _describe(operation, description, method=method, has_id="{" in path)
            scope = scope_of(view, method.upper())
            operation["security"] = _security(scope, is_change=method in _CHANGING)
            if description.answer is not None:
                kinds[description.answer.__name__] = (description.answer, False)
            if description.body is not None and description.body.kind is not None:
                kinds[description.body.kind.__name__] = (description.body.kind, True)
    # Several resources may have one tag, which is listed once.
    document["tags"] = list({tag["name"]: tag for tag in document["tags"]}.values())
    document["components"]["schemas"] = _schemas(kinds)
    document["info"]["license"] = {"name": "Apache-2.0", "identifier": "Apache-2.0"}
    return document


def _describe(
    operation: dict[str, Any], description: Description, *, method: str, has_id: bool
) -> None:
    for parameter in operation["parameters"]:
        meaning, schema = _PATH_PARAMETERS[parameter["name"]]
        parameter |= {"description": meaning, "schema": dict(schema), "required": True}
    operation["parameters"] += parameters.parameter_objects(description.query)
    refusals = {
        **_REFUSALS,
        **(_REFUSALS_OF_CHANGES if method in _CHANGING else {}),
        **({HTTPStatus.CONFLICT: _UNDER_WAY} if method == "post" else {}),
        **({HTTPStatus.NOT_FOUND: "There is none."} if has_id else {}),
        **description.refusals,
    }
    if description.body is not None:
        operation["requestBody"] = _body(description.body)
    responses = {str(description.status.value): _success(description)}
    if method == "post":
        operation["parameters"].append(idempotency.PARAMETER)
    if description.is_cacheable:
        operation["parameters"].append(etags.PARAMETER)
        responses["304"] = {"description": "What `If-None-Match` names is still the newest."}
    responses |= {str(s.value): _refusal(refusals[s]) for s in sorted(refusals)}
    operation["responses"] = {**responses, "default": _refusal("Refused, or failed.")}


def _security(scope: Scope | None, *, is_change: bool) -> list[dict[str, list[str]]]:
    if scope is None:
        return []
    session: dict[str, list[str]] = {"session": []}
    if is_change:
        session["csrf"] = []
    # Without any of them on an open farm, which the last one says.
    return [{"token": [scope.value]}, session, {}]


def _success(description: Description) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    if description.answer is not None:
        schema = {"$ref": _REF.format(model=description.answer.__name__)}
    success: dict[str, Any] = {
        "description": description.meaning,
        "content": {description.content_type: {"schema": schema}},
    }
    if description.is_cacheable:
        success["headers"] = {
            "ETag": {"description": "Names this answer.", "schema": {"type": "string"}}
        }
    return success


def _refusal(meaning: str) -> dict[str, Any]:
    schema = {"$ref": _REF.format(model="Problem")}
    return {"description": meaning, "content": {PROBLEM_JSON: {"schema": schema}}}


def _body(body: Body) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if body.kind is not None:
        content[JSON] = {"schema": {"$ref": _REF.format(model=body.kind.__name__)}}
    for content_type, meaning in body.other_types.items():
        content[content_type] = {"schema": {"type": "string", "description": meaning}}
    return {"required": body.is_required, "content": content}


def _schemas(kinds: Mapping[str, tuple[type, bool]]) -> dict[str, Any]:
    """Return the JSON Schemas of the types and of all that they hold, by name."""
    inputs: Iterable[Any] = [
        (name, "validation" if is_body else "serialization", TypeAdapter(kind))
        for name, (kind, is_body) in kinds.items()
    ]
    found, together = TypeAdapter.json_schemas(
        list(inputs), ref_template=_REF, schema_generator=PlainSchema
    )
    schemas: dict[str, Any] = dict(together.get("$defs", {}))
    for (name, _), schema in found.items():
        if schema.get("$ref") != _REF.format(model=name):
            schemas[str(name)] = schema
    return schemas
