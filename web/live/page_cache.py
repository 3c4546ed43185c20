"""Caches a page that follows a running sweep or job: for one second, for all viewers.

Only requests that an open page sends by itself after a change are answered from the cache, see
`web.request_body`.

Viewers who must see different pages have different keys. The CSRF token of the session is not part
of the key: the cached page has a placeholder for it, which is replaced for each viewer.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import TypeVar

from flask import Flask, Response, current_app, g, request, session
from flask.typing import ResponseReturnValue

from farm.processes.cache import Cache
from web.access.authentication import caller
from web.access.authorization import PLACE_OF_TOKEN, csrf_token
from web.request_body import LIVE_LIFE_S, is_live_request

_MOST_KEPT = 16  # pages of some hundred kilobytes
_FLASHES = "_flashes"  # where Flask keeps messages for the next page
_KEY = "page_cache"
_View = TypeVar("_View", bound=Callable[..., ResponseReturnValue])


@dataclass(frozen=True, slots=True)
class CachedPage:
    """A page as it was made, cut where each viewer's token belongs.

    Encoded as it is sent: to encode some hundred kilobytes again for each of forty viewers takes
    longer than all the rest of a request.
    """

    pieces: tuple[bytes, ...]
    headers: tuple[tuple[str, str], ...]


def install(app: Flask) -> None:
    """Give an app its cache of pages."""
    app.extensions[_KEY] = Cache(most=_MOST_KEPT)


def shared(view: _View) -> _View:
    """Cache the page of a view for all its viewers. Put this right below the route."""

    @functools.wraps(view)
    def cached(**names: str) -> ResponseReturnValue:
        if not is_live_request() or session.get(_FLASHES):
            return view(**names)
        who = caller()
        key = (request.full_path, who.scope, who.is_farm_open)
        cache: Cache = current_app.extensions[_KEY]
        # Compared with the start: requests that wait for a slow page share it too.
        since_s = time.monotonic() - LIVE_LIFE_S
        try:
            page: CachedPage = cache.get(
                key, lambda _: _make(view, names), is_good=lambda made: made.begun_s >= since_s
            )
        except _NotShared as other:
            return other.response
        token = csrf_token().encode() if len(page.pieces) > 1 else b""
        return Response(token.join(page.pieces), headers=page.headers)

    return cached  # type: ignore[return-value] # it takes what the view takes


class _NotShared(Exception):
    """The view answered with something other than a page."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.status)
        self.response = response


def _make(view: Callable[..., ResponseReturnValue], names: dict[str, str]) -> CachedPage:
    g.has_place_of_token = True
    try:
        response = current_app.make_response(view(**names))
    finally:
        g.has_place_of_token = False
    if response.status_code != HTTPStatus.OK:
        raise _NotShared(response)
    # Its length may change with the token.
    headers = [(name, value) for name, value in response.headers if name != "Content-Length"]
    pieces = response.get_data().split(PLACE_OF_TOKEN.encode())
    return CachedPage(tuple(pieces), tuple(headers))
