"""Identifies the caller by bearer token or session, with every request.

A token that is revoked or has expired therefore ends every session that was opened with it. A
session holds the id of its token, never the token. Live pages send many requests, so their lookups
are cached for one second.

A farm is open while it listens directly on loopback and no token was ever created. Any caller may
then do everything. Creating the first token closes the farm.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import logging
import time
from dataclasses import dataclass
from functools import partial
from typing import cast

import sqlalchemy as sa
from flask import Response, after_this_request, g, request, session

from farm.errors import Unreachable
from farm.keys.api_tokens import Scope
from farm.settings.server import Settings
from farm.store.access.api_tokens import (
    has_tokens,
    is_use_due,
    note_use,
    presented_token,
    token_of_session,
)
from farm.store.engine import writing
from farm.store.tables import ApiToken
from web.access.scopes import needed_scope
from web.backend import backend, now, read_session
from web.request_body import LIVE_LIFE_S, is_live_request

logger = logging.getLogger(__name__)

ENVIRONMENT = "FARM_API_TOKEN"
_TOKEN_ID = "token_id"  # in a session; ids begin at 1
_SESSION_ID = "session_id"
_ID_OF_ENVIRONMENT = 0


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request. `scope` None: an unknown client.

    `token`: the token's name. `is_bearer`: the token came with this request as a bearer, which no
    page of another site can cause. `is_wrong`: the request had a token that is none of this farm.
    """

    scope: Scope | None = None
    token: str | None = None
    is_bearer: bool = False
    is_wrong: bool = False
    is_farm_open: bool = False

    def may(self, needed: Scope) -> bool:
        """Tell whether the caller has a scope."""
        return self.scope is not None and self.scope.includes(needed)


_NOBODY = Caller()
_OF_OPEN_FARM = Caller(Scope.ADMIN, is_farm_open=True)


def caller() -> Caller:
    """Return the caller of this request. Raises Unreachable if the store does not answer."""
    if "caller" not in g:
        g.caller = _identify()
    return cast(Caller, g.caller)


def known_caller() -> Caller | None:
    """Return the caller if it was determined already, for error pages, which must not fail."""
    return cast(Caller | None, g.get("caller"))


def is_beyond_loopback(settings: Settings) -> bool:
    """Tell whether programs of other machines can reach the web server."""
    return settings.proxy_count > 0 or not is_loopback(settings.web_host)


def is_loopback(host: str) -> bool:
    """Tell whether a host name or address means this machine itself."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def sign_in(presented: str) -> bool:
    """Sign in this browser's session with a token, if it is valid. Mutates the session."""
    if _is_environments(presented):
        _open_session(_ID_OF_ENVIRONMENT, ENVIRONMENT)
        return True
    with read_session() as store:
        found = presented_token(store, presented, now=now())
    if found is None:
        return False
    _open_session(found.id, found.name)
    return True


def sign_out() -> None:
    """End the session on the server, so a copy of its cookie is useless, and forget it."""
    backend().sessions.forget(session.get(_SESSION_ID, ""))
    session.clear()


def _open_session(token_id: int, name: str) -> None:
    # Empty, so that nothing of an earlier sign-in stays, its CSRF token included.
    session.clear()
    session[_TOKEN_ID] = token_id
    session[_SESSION_ID] = backend().sessions.keep(token_id, now=now())
    logger.info("signed in", extra={"token": name, "address": request.remote_addr})


def _identify() -> Caller:
    settings, presented = backend().settings, _bearer()
    token_id = None if presented is not None else session.get(_TOKEN_ID)
    if token_id is not None:
        token_id = backend().sessions.find(session.get(_SESSION_ID, ""), now=now())
    if presented is not None and _is_environments(presented):
        return Caller(Scope.ADMIN, ENVIRONMENT, is_bearer=True)
    if token_id == _ID_OF_ENVIRONMENT:
        return Caller(Scope.ADMIN, ENVIRONMENT)
    may_be_open = settings.api_token is None and not is_beyond_loopback(settings)
    found: ApiToken | None = None
    if may_be_open or presented is not None or token_id is not None:
        looked_up = _looked_up(presented, token_id, may_be_open=may_be_open)
        if looked_up.is_farm_open:
            return _OF_OPEN_FARM
        found = looked_up.token
    if found is not None:
        if is_use_due(found, now=now()):
            _note_use_after(found)
        return Caller(found.scope, f"token {found.name!r}", is_bearer=presented is not None)
    if token_id is not None:
        # Its token no longer counts, so this is a stranger's browser again.
        session.pop(_TOKEN_ID)
    return _NOBODY if presented is None else Caller(is_wrong=True)


@dataclass(frozen=True, slots=True)
class _TokenLookup:
    """The result of looking up a caller in the store. `token`: the valid token."""

    is_farm_open: bool = False
    token: ApiToken | None = None


def _looked_up(presented: str | None, token_id: int | None, *, may_be_open: bool) -> _TokenLookup:
    def look_up(_: _TokenLookup | None = None) -> _TokenLookup:
        with read_session() as store:
            if may_be_open and not has_tokens(store):
                return _TokenLookup(is_farm_open=True)
            if presented is not None:
                return _TokenLookup(token=presented_token(store, presented, now=now()))
            if token_id is not None:
                return _TokenLookup(token=token_of_session(store, token_id, now=now()))
        return _TokenLookup()

    # What is presented is a guess until it was looked up, so nothing of it is kept.
    if presented is not None or not is_live_request():
        return look_up()
    since_s = time.monotonic() - LIVE_LIFE_S
    return backend().callers.get(token_id, look_up, is_good=lambda made: made.begun_s >= since_s)


def _bearer() -> str | None:
    # Where nothing is needed, failures are not counted; so no answer may depend on a guess there.
    if needed_scope() is None:
        return None
    scheme, _, presented = request.headers.get("Authorization", "").partition(" ")
    return presented.strip() if scheme.lower() == "bearer" else None


def _is_environments(presented: str) -> bool:
    """Compare with FARM_API_TOKEN in a time that reveals neither its length nor a correct part."""
    expected = backend().settings.api_token
    return expected is not None and hmac.compare_digest(_digest(presented), _digest(expected))


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="backslashreplace")).digest()


def _note_use_after(token: ApiToken) -> None:
    """Record the use after the response was sent: on SQLite, writing may have to wait."""
    note = partial(_note_use, backend().engine, token.id)

    @after_this_request
    def note_when_closed(response: Response) -> Response:
        response.call_on_close(note)
        return response


def _note_use(engine: sa.Engine, token_id: int) -> None:
    try:
        with writing(engine) as store:
            note_use(store, token_id, now=now())
    except Unreachable as error:
        logger.warning("the use of a token was not noted: %s", error)
