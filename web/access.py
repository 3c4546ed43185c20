"""Who may ask, and who may change something.

Reading is open to everyone who reaches the server. A change needs the token, as a bearer or
through a signed-in session with its CSRF token. Without a token the server listens on loopback
only, where the danger is other people's web pages in the user's own browser: they must not post
(origin, content type, CSRF token) nor read through a name they control (Host).
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from http import HTTPStatus
from urllib.parse import urlsplit

from flask import Flask, Response, redirect, request, session, url_for
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import RequestEntityTooLarge

from web.backend import backend
from web.errors import Refused

MAX_BODY_BYTES = 1 << 20
CSRF_FIELD = "csrf_token"
CSRF_HEADER = "X-CSRF-Token"
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
# A form of another site cannot send these without asking first, which is never granted.
_GUARDED_TYPES = frozenset({"application/json", "application/toml"})
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
        "object-src 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    # Not no-referrer: with that, browsers send "Origin: null" with our own forms.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def install(app: Flask) -> None:
    """Check every request before its endpoint runs, and harden every response."""
    app.before_request(_check)
    app.after_request(_harden)


def is_loopback(host: str) -> bool:
    """Tell whether a host name or address means this machine itself."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_signed_in() -> bool:
    """Tell whether this browser may change something: always where no token is set."""
    return backend().settings.api_token is None or session.get("signed_in") is True


def sign_in(token: str) -> bool:
    """Sign this browser's session in if the token is right. Mutates the session."""
    expected = backend().settings.api_token
    if expected is None or not _same(token, expected):
        return False
    session.clear()
    session["signed_in"] = True
    return True


def csrf_token() -> str:
    """Return the session's secret that every form must send back, made on first use."""
    token: str = session.setdefault("csrf", secrets.token_urlsafe(24))
    return token


def _check() -> ResponseReturnValue | None:
    _check_host()
    if request.content_length is not None and request.content_length > MAX_BODY_BYTES:
        raise RequestEntityTooLarge
    # An unknown address is answered as such, whoever asks.
    if request.routing_exception is not None or request.method in _SAFE_METHODS:
        return None
    if request.path.startswith("/api/"):
        _check_api()
        return None
    return _check_form()


def _check_host() -> None:
    settings = backend().settings
    if settings.api_token is not None:
        return
    host = _host_of(f"//{request.headers.get('Host', '')}")
    if not (is_loopback(host) or host == settings.web_host.strip("[]").lower()):
        raise Refused(
            HTTPStatus.MISDIRECTED_REQUEST,
            f"Host: expected a loopback name such as localhost, got {host[:80]!r}; "
            "to serve under other names set FARM_API_TOKEN",
        )


def _host_of(address: str) -> str:
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""  # such as a bracket that is never closed


def _check_api() -> None:
    expected = backend().settings.api_token
    scheme, _, presented = request.headers.get("Authorization", "").partition(" ")
    if expected is not None and scheme.lower() == "bearer":
        if _same(presented.strip(), expected):
            return
        raise _unauthorised("Authorization: the token is wrong")
    _check_origin()
    if expected is not None:
        if not is_signed_in():
            raise _unauthorised("Authorization: expected 'Bearer' and the token FARM_API_TOKEN")
        if not _same(request.headers.get(CSRF_HEADER, ""), csrf_token()):
            raise Refused(
                HTTPStatus.FORBIDDEN, f"{CSRF_HEADER}: expected the token of this sign-in"
            )
    elif request.mimetype not in _GUARDED_TYPES:
        raise Refused(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"Content-Type: expected application/json, got {request.mimetype[:80]!r}",
        )


def _check_form() -> ResponseReturnValue | None:
    _check_origin()
    if not is_signed_in() and request.endpoint != "login.post_login":
        return redirect(url_for("login.get_login"), HTTPStatus.SEE_OTHER)
    if not _same(request.form.get(CSRF_FIELD, ""), csrf_token()):
        raise Refused(
            HTTPStatus.FORBIDDEN,
            "this form is too old, or its cookie is missing: load the page again, then repeat it",
        )
    return None


def _check_origin() -> None:
    """Refuse what a browser itself says comes from another site; programs send neither header."""
    origin = request.headers.get("Origin")
    own = request.headers.get("Host", "").lower()
    is_foreign = origin is not None and origin.lower().partition("://")[2] != own
    if is_foreign or request.headers.get("Sec-Fetch-Site") in ("cross-site", "same-site"):
        raise Refused(HTTPStatus.FORBIDDEN, "the request comes from another site's page")


def _unauthorised(detail: str) -> Refused:
    return Refused(
        HTTPStatus.UNAUTHORIZED, detail, headers={"WWW-Authenticate": 'Bearer realm="benchfarm"'}
    )


def _same(presented: str, expected: str) -> bool:
    """Compare in a time that does not tell how much of it was right."""
    return hmac.compare_digest(presented.encode(errors="replace"), expected.encode())


def _harden(response: Response) -> Response:
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers.setdefault("Cache-Control", "no-cache")
    return response
