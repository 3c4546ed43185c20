"""Renders errors: problem+json (RFC 9457) for programs, a page for people.

Nothing a client sends may end in a 5xx; one that does is a bug, and is logged with its traceback.
"""

from __future__ import annotations

import json
import logging
from http import HTTPStatus

from flask import Flask, Response, render_template, request
from werkzeug.exceptions import HTTPException

from farm.errors import (
    FarmError,
    InvalidSpec,
    InvalidTransition,
    LeaseConflict,
    NotFound,
    Unreachable,
)
from web.access.scopes import SAFE_METHODS

logger = logging.getLogger(__name__)

_PROGRAM_PATHS = ("/api/", "/health/", "/metrics")
_DOCS_PATH = "/api/v1/docs"  # the page about them


_AWAY = "the store or the broker does not answer: the web server's log says more"
_FAILED = "the request could not be carried out: the web server's log says why"


class RefusedRequest(FarmError):
    """A request that is refused with an HTTP status, such as one with a wrong token."""

    def __init__(
        self, status: HTTPStatus, detail: str, *, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.headers = headers or {}


def install(app: Flask) -> None:
    """Answer every exception of a request."""
    app.register_error_handler(FarmError, _farm_error)
    app.register_error_handler(HTTPException, _http_error)
    app.register_error_handler(Exception, _bug)


def is_for_programs(path: str) -> bool:
    """Tell whether programs ask for this address, rather than people."""
    return path.startswith(_PROGRAM_PATHS) and not path.startswith(_DOCS_PATH)


def status_of(error: FarmError) -> HTTPStatus:
    """Return the status that tells a client what it can do about the error.

    An invalid value is 400 in a query and 422 in a posted body.
    """
    match error:
        case RefusedRequest():
            return error.status
        case InvalidSpec() if request.method in SAFE_METHODS:
            return HTTPStatus.BAD_REQUEST
        case InvalidSpec():
            return HTTPStatus.UNPROCESSABLE_ENTITY
        case NotFound():
            return HTTPStatus.NOT_FOUND
        case InvalidTransition() | LeaseConflict():
            return HTTPStatus.CONFLICT
        case Unreachable():
            return HTTPStatus.SERVICE_UNAVAILABLE
        case _:
            return HTTPStatus.INTERNAL_SERVER_ERROR


def problem(
    status: HTTPStatus,
    detail: str,
    *,
    field: str | None = None,
    headers: dict[str, str] | None = None,
) -> Response:
    """Build a problem+json response; `field` names the field at fault."""
    body: dict[str, object] = {
        "type": "about:blank",
        "title": status.phrase,
        "status": status.value,
        "detail": detail,
    }
    if field is not None:
        body["field"] = field
    response = Response(json.dumps(body), status.value, content_type="application/problem+json")
    response.headers.update(headers or {})
    return response


def _answer(
    status: HTTPStatus,
    detail: str,
    *,
    field: str | None = None,
    headers: dict[str, str] | None = None,
) -> Response:
    if is_for_programs(request.path):
        return problem(status, detail, field=field, headers=headers)
    page = render_template("error.html", status=status, detail=detail)
    response = Response(page, status.value, content_type="text/html; charset=utf-8")
    response.headers.update(headers or {})
    return response


def _farm_error(error: FarmError) -> Response:
    status = status_of(error)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR and not isinstance(error, RefusedRequest):
        logger.error("request failed: %s", error)
        # What is behind it names hosts, accounts and files, which the log is for.
        detail = _AWAY if isinstance(error, Unreachable) else _FAILED
        return _answer(status, detail)
    headers = error.headers if isinstance(error, RefusedRequest) else None
    field = error.field if isinstance(error, InvalidSpec) else None
    return _answer(status, str(error), field=field, headers=headers)


def _http_error(error: HTTPException) -> Response:
    """Answer what Flask itself refuses; redirects pass through it too and stay as they are."""
    if error.code is None or error.code < HTTPStatus.BAD_REQUEST:
        passed = error.get_response()
        return Response(passed.get_data(), passed.status, dict(passed.headers))
    status = HTTPStatus(error.code)
    headers = {
        name: value
        for name, value in error.get_headers()
        if name in ("Allow", "Retry-After", "WWW-Authenticate")
    }
    return _answer(status, _in_our_words(status, error), headers=headers)


def _in_our_words(status: HTTPStatus, error: HTTPException) -> str:
    shown = request.path if len(request.path) <= 80 else request.path[:77] + "..."
    match status:
        case HTTPStatus.NOT_FOUND:
            return f"{shown}: there is nothing at this address"
        case HTTPStatus.METHOD_NOT_ALLOWED:
            allowed = ", ".join(sorted(getattr(error, "valid_methods", None) or ()))
            return f"{shown}: {request.method} is not possible here, expected {allowed}"
        case HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            limit_bytes = request.max_content_length or 0
            return f"the body is larger than the limit of {limit_bytes / 2**20:g} MiB"
        case _:
            return error.description or status.phrase


def _bug(error: Exception) -> Response:
    logger.exception("request failed", extra={"method": request.method, "path": request.path})
    return _answer(
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "the server has a defect here; its log holds the traceback",
    )
