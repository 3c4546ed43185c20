"""Decides whether a request is allowed, and blocks attacks from other web sites.

A view declares the scope that its route needs (`web.access.scopes`); `web.access.authentication`
identifies the caller and its scopes. A request carries a bearer token, or the session of a browser
that signed in with a token. Changes made in a session also need its CSRF token. Reading needs a
token too, unless FARM_OPEN_READING says otherwise.

An open farm needs no token. There the danger is other web sites in the user's browser. They must
not post (origin, content type, CSRF token), nor read through a host name that they control (Host),
nor load expensive pages to keep the server busy (fetch metadata).
"""

from __future__ import annotations

import hmac
import logging
import secrets
from collections.abc import Callable
from http import HTTPStatus
from typing import TypeVar
from urllib.parse import urlsplit

from flask import Flask, Response, current_app, g, redirect, request, session, url_for
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import RequestEntityTooLarge

from farm.keys.api_tokens import Scope
from web.access import limits
from web.access.authentication import Caller, caller, is_loopback, known_caller
from web.access.scopes import SAFE_METHODS, needed_scope
from web.backend import backend
from web.errors import RefusedRequest, is_for_programs

logger = logging.getLogger(__name__)

MAX_BODY_BYTES = 1 << 20  # unless an endpoint `takes_up_to` more
_LIMIT = "max_body_bytes"
_View = TypeVar("_View", bound=Callable[..., ResponseReturnValue])
CSRF_FIELD = "csrf_token"
CSRF_HEADER = "X-CSRF-Token"
_CSRF = "csrf"  # in a session
# Where `web.live.page_cache` puts the token of each viewer: a word that no page contains by
# itself.
PLACE_OF_TOKEN = secrets.token_urlsafe(24)
_LONGEST_WAY_BACK = 1000  # escaped once more, it must fit into a request line of 4094 bytes
# A form of another site cannot send these without asking first, which is never granted.
_GUARDED_TYPES = frozenset({"application/json", "application/toml", "application/zip"})
CONTENT_POLICY = (
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "object-src 'none'"
)
_HEADERS = {
    "Content-Security-Policy": CONTENT_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    # Not no-referrer: with that, browsers send "Origin: null" with our own forms.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

# Where this server speaks TLS itself; a proxy says it for its own names, of which we know nothing.
# A month, so that a farm which goes back to HTTP on purpose is not out of reach for a year.
_BY_TLS_ALONE = ("Strict-Transport-Security", f"max-age={30 * 24 * 3600}")


def install(app: Flask) -> None:
    """Check every request before its endpoint runs, and harden every response."""
    app.before_request(_recognise)
    # Between the two: limits need to know who asks, and nobody may guess beyond them.
    limits.install(app)
    app.before_request(_admit)
    app.after_request(_harden)


def csrf_token() -> str:
    """Return the session's secret that every form must send back, made on first use."""
    if g.get("has_place_of_token", False):
        return PLACE_OF_TOKEN
    if _CSRF not in session:
        session[_CSRF] = secrets.token_urlsafe(24)
    token: str = session[_CSRF]
    return token


def shown_access() -> dict[str, bool]:
    """Return the caller's part of templates; on error pages the caller may be unknown."""
    who = known_caller()
    return {
        "is_signed_in": who is not None and who.scope is not None,
        "may_submit": who is not None and who.may(Scope.SUBMIT),
        "may_administer": who is not None and who.may(Scope.ADMIN),
        "needs_token": who is not None and not who.is_farm_open,
    }


def own_address(text: str) -> str | None:
    """Return the address if it is a path of this server, to go to after signing in; else None.

    Browsers read backslashes as slashes, and two slashes as the start of another site's name.
    """
    is_path = text.startswith("/") and not text.startswith("//")
    return text if is_path and text.isprintable() and "\\" not in text else None


def takes_up_to(limit_bytes: int) -> Callable[[_View], _View]:
    """Let an endpoint accept larger bodies than the others. Goes below its route."""

    def mark(view: _View) -> _View:
        vars(view)[_LIMIT] = limit_bytes
        return view

    return mark


def _recognise() -> None:
    view = current_app.view_functions.get(request.endpoint or "")
    limit_bytes = getattr(view, _LIMIT, MAX_BODY_BYTES)
    if request.mimetype == "application/x-www-form-urlencoded":  # which holds no file
        limit_bytes = min(limit_bytes, MAX_BODY_BYTES)
    request.max_content_length = limit_bytes
    if request.content_length is not None and request.content_length > limit_bytes:
        raise RequestEntityTooLarge
    # An unknown address is not found, with or without a token.
    if request.routing_exception is None and needed_scope() is not None and caller().is_farm_open:
        _check_host()


def _admit() -> ResponseReturnValue | None:
    if request.routing_exception is not None:
        return None
    needed = needed_scope()
    # Even where reading is open: else an answer would tell, uncounted, whether a guess was right.
    if needed is not None and caller().is_wrong:
        raise _unauthorised(caller())
    if request.method in SAFE_METHODS:
        if needed is None:
            return None
        _check_embedding()
        is_open = needed is Scope.READ and backend().settings.open_reading == 1
        return None if is_open or caller().may(needed) else _turn_away(needed)
    if request.path.startswith("/api/"):
        _check_api(needed or Scope.READ)
        return None
    return _check_form(needed)


def _turn_away(needed: Scope) -> ResponseReturnValue:
    who = caller()
    if who.scope is not None:
        raise _forbidden(who, needed)
    if is_for_programs(request.path):
        raise _unauthorised(who)
    query = request.query_string.decode(errors="replace")
    back = f"{request.path}?{query}" if query else request.path
    is_worth_it = back != "/" and len(back) <= _LONGEST_WAY_BACK
    to = url_for("login.get_login", next=back if is_worth_it else None)
    return redirect(to, HTTPStatus.SEE_OTHER)


def _check_host() -> None:
    host = _host_of(f"//{request.headers.get('Host', '')}")
    if not (is_loopback(host) or host == backend().settings.web_host.strip("[]").lower()):
        raise RefusedRequest(
            HTTPStatus.MISDIRECTED_REQUEST,
            f"Host: expected a loopback name such as localhost, got {host[:80]!r}; "
            "to serve under other names make a token: `farm token create NAME --scope admin`",
        )


def _host_of(address: str) -> str:
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""  # such as a bracket that is never closed


def _check_api(needed: Scope) -> None:
    who = caller()
    if not who.is_bearer:
        _check_origin()
        if who.scope is None:
            raise _unauthorised(who)
        if who.is_farm_open and request.mimetype not in _GUARDED_TYPES:
            raise RefusedRequest(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                f"Content-Type: expected one of {', '.join(sorted(_GUARDED_TYPES))}, "
                f"got {request.mimetype[:80]!r}",
            )
        if not who.is_farm_open and not _same(request.headers.get(CSRF_HEADER, ""), csrf_token()):
            raise RefusedRequest(
                HTTPStatus.FORBIDDEN, f"{CSRF_HEADER}: expected the token of this sign-in"
            )
    if not who.may(needed):
        raise _forbidden(who, needed)


def _check_form(needed: Scope | None) -> ResponseReturnValue | None:
    _check_origin()
    if needed is not None and caller().scope is None:
        return redirect(url_for("login.get_login"), HTTPStatus.SEE_OTHER)
    if not _same(request.form.get(CSRF_FIELD, ""), csrf_token()):
        raise RefusedRequest(
            HTTPStatus.FORBIDDEN,
            "this form is too old, or its cookie is missing: load the page again, then repeat it",
        )
    if needed is not None and not caller().may(needed):
        raise _forbidden(caller(), needed)
    return None


def _check_origin() -> None:
    """Refuse requests that a browser marks as coming from another site."""
    origin = request.headers.get("Origin")
    own = request.headers.get("Host", "").lower()
    is_foreign = origin is not None and origin.lower().partition("://")[2] != own
    if is_foreign or _is_from_elsewhere():
        raise RefusedRequest(HTTPStatus.FORBIDDEN, "the request comes from another site's page")


def _check_embedding() -> None:
    """Let other sites link to a page, but not load or embed anything of it."""
    modes = request.headers.get("Sec-Fetch-Mode"), request.headers.get("Sec-Fetch-Dest")
    if _is_from_elsewhere() and modes != ("navigate", "document"):
        raise RefusedRequest(HTTPStatus.FORBIDDEN, "another site's page must not load this")


def _is_from_elsewhere() -> bool:
    return request.headers.get("Sec-Fetch-Site") in ("cross-site", "same-site")


def _unauthorised(who: Caller) -> RefusedRequest:
    """Answer that a token is needed, or that this one is wrong. Counts wrong tokens."""
    challenge = 'Bearer realm="benchfarm"'
    detail = "Authorization: expected 'Bearer' and a token of this farm (`farm token create`)"
    if who.is_wrong:
        limits.note_failure()
        logger.warning("wrong token presented", extra={"address": request.remote_addr})
        challenge += ', error="invalid_token"'
        detail = "Authorization: the token is wrong, expired or revoked"
    return RefusedRequest(HTTPStatus.UNAUTHORIZED, detail, headers={"WWW-Authenticate": challenge})


def _forbidden(who: Caller, needed: Scope) -> RefusedRequest:
    has = "no scope" if who.scope is None else f"the scope {who.scope.value}"
    return RefusedRequest(
        HTTPStatus.FORBIDDEN,
        f"this needs a token with the scope {needed.value}, and {who.token} has {has}",
        headers={
            "WWW-Authenticate": 'Bearer realm="benchfarm", error="insufficient_scope", '
            f'scope="{needed.value}"'
        },
    )


def _same(presented: str, expected: str) -> bool:
    """Compare in a time that does not reveal how much was correct."""
    return hmac.compare_digest(presented.encode(errors="backslashreplace"), expected.encode())


def _harden(response: Response) -> Response:
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
    if backend().settings.web_certificate_file is not None:
        response.headers.setdefault(*_BY_TLS_ALONE)
    # For one reader: no shared cache stores it, and a browser asks again each time.
    response.headers.setdefault("Cache-Control", "private, no-cache")
    if response.cache_control.private:
        response.vary.update(("Authorization", "Cookie"))
    return response
