"""Rate limits for requests, counted in the memory of the one server process.

Windows are fixed: each begins with the first request of its key, and is forgotten when it ends. The
library's moving windows keep a list for every address that ever sent a request.

An open farm limits nothing, since only programs of the same machine can reach it.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Callable
from http import HTTPStatus
from typing import NoReturn

from flask import Flask, g, request
from flask_limiter import ApplicationLimit, Limiter, RequestLimit

from web.access.authentication import ENVIRONMENT, known_caller
from web.access.scopes import SAFE_METHODS, is_costly
from web.backend import now
from web.errors import RefusedRequest

SIGN_IN = "login.post_login"
_FAILURES, _CHANGES, _COSTLY = "10 per minute", "120 per minute", "60 per minute"
_PREFIX_OF_ONE_USER = 64  # bits of an IPv6 address; those behind it are the user's to choose


def install(app: Flask) -> None:
    """Check the limits before each request, after the caller was identified."""
    Limiter(
        _address,
        app=app,
        application_limits=[
            ApplicationLimit(
                _FAILURES,
                scope="failures",
                exempt_when=_cannot_guess,
                deduct_when=lambda _: bool(g.get("has_failed", False)),
                on_breach=_refuse("wrong tokens from this address"),
            ),
            ApplicationLimit(
                _CHANGES,
                scope="changes",
                key_function=_token,
                exempt_when=_changes_nothing,
                on_breach=_refuse("changes with this token"),
            ),
            ApplicationLimit(
                _COSTLY,
                scope="costly",
                exempt_when=_costs_little,
                on_breach=_refuse("requests of this kind from this address"),
            ),
        ],
        storage_uri="memory://",
    )


def note_failure() -> None:
    """Count this request as one that presented a wrong token."""
    g.has_failed = True


def viewer() -> str | None:
    """Return the key by which open connections are counted; None if nothing is limited.

    Connections of programs are counted by token, those of browsers by address, since many people
    may use one token.
    """
    who = known_caller()
    if who is None or who.is_farm_open:
        return None
    return who.token if who.is_bearer else _address()


def address_key(address: str | None) -> str:
    """Return the key by which an address is counted: the part that one user's addresses share.

    A proxy may write an address with its port. Addresses that cannot be parsed are counted
    together.
    """
    text = (address or "").partition("%")[0]
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return "unreadable"
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Network((found, _PREFIX_OF_ONE_USER), strict=False))


def _address() -> str:
    return address_key(request.remote_addr)


def _token() -> str:
    who = known_caller()
    return (who.token if who is not None else None) or _address()


def _cannot_guess() -> bool:
    """Tell whether the request has no token, or a known token of 256 bits.

    So a client that guesses is refused before its token is checked, and a program with a revoked
    token does not lock out programs at the same address whose token is valid.
    """
    if request.endpoint == SIGN_IN:
        return False
    who = known_caller()
    return who is None or not (who.is_wrong or (who.is_bearer and who.token == ENVIRONMENT))


def _changes_nothing() -> bool:
    who = known_caller()
    return request.method in SAFE_METHODS or who is None or who.token is None


def _costs_little() -> bool:
    who = known_caller()
    return who is None or who.is_farm_open or not is_costly()


def _refuse(what: str) -> Callable[[RequestLimit], NoReturn]:
    def refuse(limit: RequestLimit) -> NoReturn:
        # Not `reset_at`, which is up to a second later than the window ends.
        wait_s = max(1, math.ceil(limit.window.reset_time - now().timestamp()))
        raise RefusedRequest(
            HTTPStatus.TOO_MANY_REQUESTS,
            f"too many {what}: expected at most {limit.limit.amount} a minute; "
            f"try again in {wait_s} s",
            headers={"Retry-After": str(wait_s)},
        )

    return refuse
