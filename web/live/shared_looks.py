"""Caches a live page for one second, for all viewers.

Only requests of pages that follow a change are shared, see `web.live.looks`.

What pages differ in by viewer is part of the key, except for the CSRF token of each session: in
the cached page a placeholder stands for it, which no page contains.
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
from web.access.admission import PLACE_OF_TOKEN, csrf_token
from web.access.callers import caller
from web.live.looks import LIFE_S, is_live_look

_MOST_KEPT = 16  # pages of some hundred kilobytes
_FLASHES = "_flashes"  # where Flask keeps messages for the next page
_KEY = "shared_looks"
_View = TypeVar("_View", bound=Callable[..., ResponseReturnValue])


@dataclass(frozen=True, slots=True)
class Look:
    """A page as it was made, cut where each viewer's token belongs.

    As it is sent: to write some hundred kilobytes anew for each of forty viewers takes longer than
    all the rest of a look.
    """

    pieces: tuple[bytes, ...]
    headers: tuple[tuple[str, str], ...]


def install(app: Flask) -> None:
    """Give an app its looks."""
    app.extensions[_KEY] = Cache(most=_MOST_KEPT)


def shared(view: _View) -> _View:
    """Share looks at a page among its viewers. To stand right below its route."""

    @functools.wraps(view)
    def look_at(**names: str) -> ResponseReturnValue:
        if not is_live_look() or session.get(_FLASHES):
            return view(**names)
        who = caller()
        key = (request.full_path, who.scope, who.is_farm_open)
        looks: Cache = current_app.extensions[_KEY]
        # By when it was asked for: those who wait for one that takes long share it too.
        since_s = time.monotonic() - LIFE_S
        try:
            look: Look = looks.get(
                key, lambda _: _make(view, names), is_good=lambda made: made.begun_s >= since_s
            )
        except _NotShared as other:
            return other.response
        token = csrf_token().encode() if len(look.pieces) > 1 else b""
        return Response(token.join(look.pieces), headers=look.headers)

    return look_at  # type: ignore[return-value] # it takes what the view takes


class _NotShared(Exception):
    """The view has answered with something else than a page."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.status)
        self.response = response


def _make(view: Callable[..., ResponseReturnValue], names: dict[str, str]) -> Look:
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
    return Look(tuple(pieces), tuple(headers))
