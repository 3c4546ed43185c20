"""Parses the bodies of requests, and the ids in their URLs."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, NoReturn, TypeVar

from flask import request
from pydantic import BaseModel, ValidationError
from werkzeug.exceptions import RequestEntityTooLarge

from farm.errors import InvalidSpec, NotFound
from web.errors import RefusedRequest

LARGEST_ID = 2**63 - 1
MAX_AGENT_CHARACTERS = 128
ZIP = "application/zip"
# The parser's time grows with the square of a dotted key's parts: 20 000 took 7 s.
_MAX_DOTS_IN_LINE = 1000
LIVE_HEADER = "X-Live-Look"
LIVE_LIFE_S = 1.0  # not above what live.js rests after a change
_M = TypeVar("_M", bound=BaseModel)


def posted_sweep() -> object:
    """Read the posted sweep, JSON or TOML by its content type, as plain values.

    Raises:
        Refused: another content type, or text that is not what the type says.
    """
    text = _body_text()
    if request.mimetype == "application/toml":
        return parse_toml(text)
    if request.mimetype == "application/json":
        return parse_json(text)
    raise RefusedRequest(
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        f"Content-Type: expected application/json or application/toml, got {request.mimetype!r}",
    )


def posted_archive() -> bytes:
    """Read the posted ZIP file's bytes.

    Raises:
        Refused: another content type, or more than the endpoint takes.
    """
    if request.mimetype != ZIP:
        raise RefusedRequest(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"Content-Type: expected {ZIP}, got {request.mimetype!r}",
        )
    return _body()


def posted(kind: type[_M]) -> _M:
    """Read the posted JSON object; a body that is empty is one without fields.

    Raises:
        Refused: another content type, or no JSON.
        InvalidSpec: it is no object, or a field is unknown or does not fit.
    """
    text = _body_text()
    if not text.strip():
        return kind.model_validate({})
    if request.mimetype != "application/json":
        raise RefusedRequest(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"Content-Type: expected application/json, got {request.mimetype!r}",
        )
    data = parse_json(text)
    if not isinstance(data, dict):
        raise InvalidSpec("body", data, "a JSON object")
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        raise _unfit(kind, error.errors(include_url=False)[0]) from None


def parse_json(text: str) -> object:
    """Parse JSON text strictly. Raises Refused (400), which says where it is wrong."""
    try:
        return json.loads(text, parse_constant=_no_such_number)
    except (ValueError, RecursionError) as error:
        raise _malformed("JSON", error) from None


def parse_toml(text: str) -> object:
    """Parse TOML text. Raises Refused (400), which says where it is wrong."""
    for number, line in enumerate(text.split("\n"), start=1):
        if line.count(".") > _MAX_DOTS_IN_LINE:
            error = ValueError(f"more than {_MAX_DOTS_IN_LINE} dots in line {number}")
            raise _malformed("TOML", error)
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise _malformed("TOML", error) from None


def is_live_request() -> bool:
    """Tell whether this request comes from a live page that updates itself.

    A visible page requests itself again after every change, and says so by a header. Its data may
    be `LIVE_LIFE_S` old: `live.js` pauses for as long before the request, so it still shows the
    change. A page that is loaded, or that follows a form, gets current data.
    """
    return request.method == "GET" and LIVE_HEADER in request.headers


def row_id(kind: str, text: str) -> int:
    """Read the id in an address. Raises NotFound where no row can have it."""
    value = natural(text)
    if value is None:
        raise NotFound(f"{kind} {text[:80]!r} does not exist, ids are whole numbers from 1")
    return value


def agent_name(text: str) -> str:
    """Read the agent id in an address. Raises NotFound where no agent can have it."""
    if len(text) > MAX_AGENT_CHARACTERS or not text.isprintable():
        raise NotFound(f"agent {text[:80]!r} does not exist")
    return text


def natural(text: str) -> int | None:
    """Return the id that a text is; None: no row can have it."""
    # int() also takes signs, spaces, underscores and the digits of every script. One number, one
    # text: a zero in front would make two addresses of one row.
    if not (text.isascii() and text.isdigit()) or len(text) > 19:
        return None
    if text.startswith("0") and text != "0":
        return None
    value = int(text)
    return value if 1 <= value <= LARGEST_ID else None


def _body() -> bytes:
    data = request.get_data(cache=False)
    limit = request.max_content_length
    if request.content_length is None and limit is not None and len(data) >= limit:
        # Sent in chunks; Werkzeug stops reading at the limit without a word.
        raise RequestEntityTooLarge
    return data


def _body_text() -> str:
    try:
        return _body().decode()
    except UnicodeDecodeError as error:
        raise _malformed("UTF-8 text", error) from None


def _unfit(kind: type[BaseModel], error: Mapping[str, Any]) -> InvalidSpec:
    expected = error["msg"]
    if error["type"] == "extra_forbidden":
        allowed = [field.alias or name for name, field in kind.model_fields.items()]
        expected = f"no field but {', '.join(allowed) or 'none at all'}"
    return InvalidSpec(str(error["loc"][0]), error["input"], expected)


def _malformed(language: str, error: Exception) -> RefusedRequest:
    reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
    if "set_int_max_str_digits" in reason:  # advice to a programmer
        reason = f"a whole number of more than {sys.get_int_max_str_digits()} digits"
    return RefusedRequest(
        HTTPStatus.BAD_REQUEST, f"body: expected {language}, got this: {reason[:200]}"
    )


def _no_such_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON number")
