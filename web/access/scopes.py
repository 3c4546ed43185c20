"""The scope that each route needs: its view declares it, or else a GET needs `read`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from flask import current_app, request

from farm.keys.api_tokens import Scope

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_SCOPE, _IS_COSTLY = "needed_scope", "is_costly"
_View = TypeVar("_View", bound=Callable[..., Any])


def needs(scope: Scope) -> Callable[[_View], _View]:
    """Mark a view: it needs a token with this scope."""

    def mark(view: _View) -> _View:
        vars(view)[_SCOPE] = scope
        return view

    return mark


def for_everybody(view: _View) -> _View:
    """Mark a view: it needs no token even if all others need one."""
    vars(view)[_SCOPE] = None
    return view


def costly(view: _View) -> _View:
    """Mark a view: it takes long to compute, so its requests are limited for each address."""
    vars(view)[_IS_COSTLY] = True
    return view


def needed_scope() -> Scope | None:
    """Return the scope that this request needs; None: none. Its address must be a route's.

    A change whose view declares no scope needs `admin`; a test finds such views.
    """
    endpoint = request.endpoint or ""
    if endpoint == "static":
        return None
    return scope_of(current_app.view_functions[endpoint], request.method)


def scope_of(view: Callable[..., Any], method: str) -> Scope | None:
    """Return the scope that a view needs for a method in capitals; None: none."""
    default = Scope.READ if method in SAFE_METHODS else Scope.ADMIN
    return cast(Scope | None, getattr(view, _SCOPE, default))


def is_costly() -> bool:
    """Tell whether this request's view is marked `costly`."""
    view = current_app.view_functions.get(request.endpoint or "")
    return getattr(view, _IS_COSTLY, False)
