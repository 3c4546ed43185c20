"""Exceptions of the client; each message says what happened and what to do."""

from __future__ import annotations

from functools import partial
from typing import Any


class ClientError(Exception):
    """Anything that went wrong between a program and its farm."""


class NotConnected(ClientError):
    """The server does not answer, or the connection was cut, again and again."""


class WrongServer(ClientError):
    """What answers is no farm, or one of a version that the client does not know."""


class MissingField(WrongServer, KeyError):
    """An answer lacks something, as those of servers of another version may."""

    __str__ = Exception.__str__  # that of KeyError puts quotes around it


class RequestRefused(ClientError):
    """The farm refused a request; the text says what to correct.

    `status`: of HTTP; `field`: what of the request did not fit, if it is one.
    """

    def __init__(self, detail: str, *, status: int, field: str | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.field = field

    def __reduce__(self) -> tuple[Any, ...]:
        made = partial(type(self), status=self.status, field=self.field)
        return made, self.args


class NotAuthorized(RequestRefused):
    """The token is missing or wrong, or may not do this."""


class NoSuchThing(RequestRefused):
    """There is no such sweep, job, agent or origin."""


def not_utf8(text: str) -> ClientError:
    """Return the error of a name with half a character, which no request can carry."""
    return ClientError(f"{text!r}: expected a text in UTF-8")
