"""Validates what clients send: bodies, queries, ids and cursors."""

from __future__ import annotations

import enum
import json
import re
import sys
import tomllib
from http import HTTPStatus
from typing import NoReturn, TypeVar

from flask import request
from werkzeug.datastructures import MultiDict
from werkzeug.exceptions import RequestEntityTooLarge

from farm.errors import InvalidSpec, NotFound
from farm.values.fields import whole_of
from web.errors import RefusedRequest

DEFAULT_PAGE_SIZE = 100
MAX_PAGE_SIZE = 1000
_MOST_PAGES = 1_000_000
LARGEST_ID = 2**63 - 1
ZIP = "application/zip"
# The parser's time grows with the square of a dotted key's parts: 20 000 took 7 s.
_MAX_DOTS_IN_LINE = 1000
MAX_NAME_CHARACTERS = 200
# Of no name: controls and ends of lines. Written so that JSON Schema takes it too.
UNPRINTABLE = r"\x00-\x1f\x7f-\x9f\u2028\u2029"
_NAME = re.compile(f"[^{UNPRINTABLE}]{{1,{MAX_NAME_CHARACTERS}}}")
# float() also takes spaces, underscores and the digits of every script.
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")
_E = TypeVar("_E", bound=enum.Enum)
LIVE_HEADER = "X-Live-Look"
LIVE_LIFE_S = 1.0  # not above what live.js rests after a change


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


def posted_fields(*allowed: str) -> dict[str, object]:
    """Read an optional JSON object that has no other than the allowed fields."""
    text = _body_text()
    if not text.strip():
        return {}
    if request.mimetype != "application/json":
        raise RefusedRequest(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"Content-Type: expected application/json, got {request.mimetype!r}",
        )
    data = parse_json(text)
    if not isinstance(data, dict):
        raise InvalidSpec("body", data, "a JSON object")
    for name, value in data.items():
        if name not in allowed:
            raise InvalidSpec(name, value, f"no field but {', '.join(allowed) or 'none at all'}")
    return data


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


def filled_query(*allowed: str) -> MultiDict[str, str]:
    """Return the query as `query` does, without what a form has sent empty."""
    return MultiDict({name: text for name, text in query(*allowed).items() if text.strip()})


def row_id(kind: str, text: str) -> int:
    """Read the id in an address. Raises NotFound where no row can have it."""
    value = _natural(text)
    if value is None:
        raise NotFound(f"{kind} {text[:80]!r}: there is none, ids are whole numbers from 1")
    return value


def agent_name(text: str) -> str:
    """Read the agent id in an address. Raises NotFound where no agent can have it."""
    if len(text) > 128 or not text.isprintable():
        raise NotFound(f"agent {text[:80]!r}: there is none")
    return text


def cursor(args: MultiDict[str, str]) -> int | None:
    """Read `cursor`, as a list's `next` gave it; None for the first page."""
    return optional_id(args, "cursor", expected="a cursor as `next` gave it")


def optional_id(
    args: MultiDict[str, str], name: str, *, expected: str = "an id, a whole number from 1"
) -> int | None:
    """Read a parameter that is the id of a row; None where it is absent."""
    text = args.get(name)
    if text is None:
        return None
    value = _natural(text)
    if value is None:
        raise InvalidSpec(name, text, expected)
    return value


def page_size(args: MultiDict[str, str]) -> int:
    """Read `limit`, the most items of a page."""
    text = args.get("limit")
    value = DEFAULT_PAGE_SIZE if text is None else _natural(text)
    if value is None or value > MAX_PAGE_SIZE:
        raise InvalidSpec("limit", text, f"a whole number from 1 to {MAX_PAGE_SIZE}")
    return value


def page_number(args: MultiDict[str, str], name: str) -> int:
    """Read which page of a table is asked for, from 1; the first where it is absent."""
    return whole(args, name, high=_MOST_PAGES) or 1


def choice(args: MultiDict[str, str], name: str, kind: type[_E]) -> _E | None:
    """Read a parameter that is one of an Enum's values; None where it is absent."""
    text = args.get(name)
    if text is None:
        return None
    try:
        return kind(text)
    except ValueError:
        allowed = ", ".join(str(member.value) for member in kind)
        raise InvalidSpec(name, text, f"one of {allowed}") from None


def short_text(args: MultiDict[str, str], name: str) -> str | None:
    """Read a parameter that names something; None where it is absent."""
    text = args.get(name)
    if text is not None and not _NAME.fullmatch(text):
        expected = f"a text of 1 to {MAX_NAME_CHARACTERS} printable characters"
        raise InvalidSpec(name, text, expected)
    return text


def number(
    args: MultiDict[str, str], name: str, *, low: float, high: float, default: float | None
) -> float | None:
    """Read a number within the bounds, both included."""
    text = args.get(name)
    if text is None:
        return default
    value = float(text) if _NUMBER.fullmatch(text) else float("nan")
    # Written so that NaN, which is neither below nor above anything, does not pass.
    if not low <= value <= high:
        raise InvalidSpec(name, text, f"a number from {low:g} to {high:g}")
    return value


def whole(args: MultiDict[str, str], name: str, *, high: int, low: int = 1) -> int | None:
    """Read a whole number within the bounds, both included; None where it is absent."""
    text = args.get(name)
    if text is None:
        return None
    value = _whole(text)
    if value is None or not low <= value <= high:
        raise InvalidSpec(name, text, f"a whole number from {low} to {high}")
    return value


def texts(args: MultiDict[str, str], name: str) -> tuple[str, ...]:
    """Read a list of names with commas between them; empty where it is absent."""
    text = short_text(args, name)
    if text is None:
        return ()
    items = tuple(item.strip(" ") for item in text.split(","))
    if not all(items):
        raise InvalidSpec(name, text, "names with commas between them")
    return items


def wholes(args: MultiDict[str, str], name: str, *, high: int) -> tuple[int, ...]:
    """Read a list of whole numbers from 1 with commas between them; empty where it is absent."""
    values = []
    for item in texts(args, name):
        value = _whole(item)
        if value is None or not 1 <= value <= high:
            raise InvalidSpec(name, item, f"whole numbers from 1 to {high} with commas between")
        values.append(value)
    return tuple(values)


def _whole(text: str) -> int | None:
    has_zero_in_front = text[:1] == "0" and text[1:2].isdigit()
    return None if has_zero_in_front else whole_of(text)


def _natural(text: str) -> int | None:
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


def _malformed(language: str, error: Exception) -> RefusedRequest:
    reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
    if "set_int_max_str_digits" in reason:  # advice to a programmer
        reason = f"a whole number of more than {sys.get_int_max_str_digits()} digits"
    return RefusedRequest(
        HTTPStatus.BAD_REQUEST, f"body: expected {language}, got this: {reason[:200]}"
    )


def _no_such_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON number")
