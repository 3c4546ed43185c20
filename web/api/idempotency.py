"""Answers of POST requests that named an `Idempotency-Key`, for those that are sent again.

They are kept in this process's memory, as its sessions are: after a restart of the web server a
request that is sent again is carried out again.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

from flask import Flask, Response, g, request

from web.access.callers import caller
from web.errors import Refused

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
    "schema": {"type": "string", "maxLength": LONGEST_KEY_CHARACTERS},
}
KEPT_S = 24 * 3600.0
MOST_KEPT = 2000
LONGEST_ANSWER_BYTES = 64 * 1024  # a longer one is made again
_RETRY_AFTER_S = 1


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    body: bytes
    content_type: str
    location: str | None


@dataclass(slots=True)
class _Request:
    """`answer` None: it is being carried out."""

    digest: bytes
    begun_s: float
    answer: _Answer | None = None


class Answers:
    """By caller, address and key; the `MOST_KEPT` last ones. Threads share it."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, _Request] = OrderedDict()
        self._lock = threading.Lock()

    def begin(self, name: bytes, digest: bytes) -> _Request | None:
        """Return what is known of this name, or None and note that it is begun."""
        now_s = time.monotonic()
        with self._lock:
            known = self._known.get(name)
            if known is not None and now_s - known.begun_s < KEPT_S:
                return known
            self._known[name] = _Request(digest, now_s)
            self._known.move_to_end(name)
            while len(self._known) > MOST_KEPT:
                self._known.popitem(last=False)
        return None

    def end(self, name: bytes, answer: _Answer | None) -> None:
        """Keep the answer; None: the request may be tried again."""
        with self._lock:
            known = self._known.get(name)
            if known is not None and answer is not None:
                known.answer = answer
            elif known is not None:
                del self._known[name]


def install(app: Flask) -> None:
    """Let requests of the API that are sent again have the same answer. After the admission."""
    answers = Answers()

    def replay() -> Response | None:
        if request.method != "POST" or not request.path.startswith("/api/"):
            return None
        key = request.headers.get(HEADER)
        if key is None or request.routing_exception is not None:
            return None
        if not (key.isprintable() and 0 < len(key) <= LONGEST_KEY_CHARACTERS):
            expected = f"1 to {LONGEST_KEY_CHARACTERS} printable characters"
            raise Refused(HTTPStatus.BAD_REQUEST, f"{HEADER}: expected {expected}, got {key!r:.80}")
        who = caller().token or request.remote_addr
        name = _digest(f"{who}\n{request.full_path}\n{key}".encode(errors="backslashreplace"))
        digest = _digest(request.get_data(cache=True))
        known = answers.begin(name, digest)
        if known is None:
            g.idempotent = name
            return None
        if known.digest != digest:
            raise Refused(
                HTTPStatus.UNPROCESSABLE_ENTITY,
                f"{HEADER}: another request was sent with {key!r:.80}; expected a new key",
            )
        if known.answer is None:
            raise Refused(
                HTTPStatus.CONFLICT,
                f"{HEADER}: the request with {key!r:.80} is being carried out; try again",
                headers={"Retry-After": str(_RETRY_AFTER_S)},
            )
        answer = known.answer
        response = Response(answer.body, answer.status, content_type=answer.content_type)
        response.headers[REPLAYED] = "true"
        if answer.location is not None:
            response.headers["Location"] = answer.location
        return response

    def keep(response: Response) -> Response:
        name = g.pop("idempotent", None)
        if name is not None:
            is_final = response.status_code < HTTPStatus.INTERNAL_SERVER_ERROR
            is_short = not response.is_streamed and (
                (response.content_length or 0) <= LONGEST_ANSWER_BYTES
            )
            answers.end(name, _answer_of(response) if is_final and is_short else None)
        return response

    def forget(_: BaseException | None) -> None:
        name = g.pop("idempotent", None)
        if name is not None:
            answers.end(name, None)

    app.before_request(replay)
    app.after_request(keep)
    app.teardown_request(forget)


def _answer_of(response: Response) -> _Answer:
    return _Answer(
        response.status_code,
        response.get_data(),
        response.content_type or "application/json",
        response.headers.get("Location"),
    )


def _digest(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()
