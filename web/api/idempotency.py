"""Repeats the stored answer to a POST request with a known `Idempotency-Key`.

Answers are stored in the database, so they survive a restart of the web server.
"""

from __future__ import annotations

import datetime as dt
import functools
import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

from flask import Flask, Response, g, request
from sqlalchemy.orm import Session

from farm.errors import Unreachable
from farm.store.access.idempotency_keys import find_answer, keep_answer, note_request
from farm.store.engine import writing
from farm.store.tables import IdempotentAnswer
from web.access.authentication import caller
from web.backend import backend, in_each_transaction, now, read_session
from web.errors import RefusedRequest

HEADER = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"
LONGEST_KEY_CHARACTERS = 200
PARAMETER: Mapping[str, object] = {
    "name": HEADER,
    "in": "header",
    "description": (
        "Of the client's choice: for a day, the same request with the same key has the same answer "
        "and is not carried out again. 409 while it is; 422 if it is another request."
    ),
    "required": False,
    "schema": {"type": "string", "minLength": 1, "maxLength": LONGEST_KEY_CHARACTERS},
}
LONGEST_ANSWER_BYTES = 16 * 1024
# Of what was created: that of a sweep lists the cells that were left out, as the store does, too.
LONGEST_CREATED_BYTES = 1024 * 1024
# A request that has no answer after so long will get none: its server has ended.
_UNDER_WAY = dt.timedelta(seconds=60)
_RETRY_AFTER_S = 1

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Request:
    """`name`: of its caller, address and key; `key`: as it is shown."""

    name: str
    digest: str
    key: str
    begun_at: dt.datetime


def install(app: Flask) -> None:
    """Give repeated requests of the API the same answer. Call it after `authorization.install`."""

    def replay() -> Response | None:
        if request.method != "POST" or not request.path.startswith("/api/"):
            return None
        key = request.headers.get(HEADER)
        if key is None or request.routing_exception is not None:
            return None
        if not (key.isprintable() and 0 < len(key) <= LONGEST_KEY_CHARACTERS):
            expected = f"1 to {LONGEST_KEY_CHARACTERS} printable characters"
            raise RefusedRequest(
                HTTPStatus.BAD_REQUEST, f"{HEADER}: expected {expected}, got {key!r:.80}"
            )
        who = caller().token or request.remote_addr
        sent = _Request(
            name=_digest(f"{who}\n{request.full_path}\n{key}".encode(errors="backslashreplace")),
            digest=_digest(request.get_data(cache=True)),
            key=f"{key!r:.80}",
            begun_at=now(),
        )
        with read_session() as session:
            known = find_answer(session, sent.name, now=sent.begun_at)
        if known is not None:
            return _again(sent, known)
        g.idempotent = sent
        in_each_transaction(functools.partial(_note, sent))
        return None

    def keep(response: Response) -> Response:
        sent = g.pop("idempotent", None)
        if sent is not None:
            is_final = response.status_code < HTTPStatus.INTERNAL_SERVER_ERROR
            is_created = response.status_code == HTTPStatus.CREATED
            most = LONGEST_CREATED_BYTES if is_created else LONGEST_ANSWER_BYTES
            is_short = not response.is_streamed and (response.content_length or 0) <= most
            if is_final and is_short:
                _keep(sent, response)
        return response

    app.before_request(replay)
    app.after_request(keep)


def _again(sent: _Request, known: IdempotentAnswer) -> Response:
    if known.request_digest != sent.digest:
        raise RefusedRequest(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            f"{HEADER}: another request was sent with {sent.key}; expected a new key",
        )
    if known.status is None:
        if sent.begun_at - known.begun_at < _UNDER_WAY:
            raise _under_way(sent)
        raise RefusedRequest(
            HTTPStatus.CONFLICT,
            f"{HEADER}: the request with {sent.key} was carried out at {known.begun_at:%H:%M:%S} "
            "UTC, and its answer was not kept; look at what it has changed, and use a new key for "
            "another",
        )
    response = Response(known.body, known.status, content_type=known.content_type)
    response.headers[REPLAYED] = "true"
    if known.location is not None:
        response.headers["Location"] = known.location
    return response


def _note(sent: _Request, session: Session) -> None:
    if not note_request(session, sent.name, sent.digest, now=sent.begun_at):
        g.pop("idempotent")
        raise _under_way(sent)


def _keep(sent: _Request, response: Response) -> None:
    answer = IdempotentAnswer(
        name=sent.name,
        request_digest=sent.digest,
        begun_at=sent.begun_at,
        status=response.status_code,
        body=response.get_data(),
        content_type=response.content_type or "application/json",
        location=response.headers.get("Location"),
    )
    try:
        with writing(backend().engine) as session:
            keep_answer(session, answer)
    except Unreachable as error:
        logger.warning("an answer was not kept: %s", error)


def _under_way(sent: _Request) -> RefusedRequest:
    return RefusedRequest(
        HTTPStatus.CONFLICT,
        f"{HEADER}: the request with {sent.key} is being carried out; try again",
        headers={"Retry-After": str(_RETRY_AFTER_S)},
    )


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()
