"""Sends HTTP requests to a farm: adds the token, retries, follows pages, raises ClientError."""

from __future__ import annotations

import json
import math
import random
import time
import uuid
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import IO, Any

import httpx

from benchfarm.client.errors import (
    ClientError,
    MissingField,
    NoSuchThing,
    NotAuthorized,
    NotConnected,
    RequestRefused,
    WrongServer,
    not_utf8,
)

API = "/api/v1"
JSON, TOML, ZIP = "application/json", "application/toml", "application/zip"
_PROBLEM = "application/problem+json"
# What the next attempt may well get through. 409 is one only with `Retry-After`: the same request
# is still being carried out.
_PASSING = frozenset({429, 502, 503, 504})
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0
ANSWER_S, _CONNECT_S = 60.0, 5.0
# So long a stream may be silent: the server writes to it every 5 s.
_LINE_S = 10.0
# So long the last request of a wait may take, beyond its limit.
_LAST_ANSWER_S = 2.0
_LONGEST_TEXT, _LONGEST_ERROR = 200, 500
_EXAMPLE = "such as http://127.0.0.1:8080"

# A value of a query: several are sent with commas between them, None is left out.
JsonValue = Any


class AnsweredObject(dict[str, Any]):
    """An object of the API's JSON."""

    def __missing__(self, name: object) -> Any:
        raise MissingField(
            f"the farm's answer has no {name!r}: take a client of the farm's own version, or "
            f"correct the name; it has {', '.join(self) or 'nothing'}"[:_LONGEST_ERROR]
        )


class FarmConnection:
    """Sends requests to one farm, again where that is safe, until `patience_s` are over.

    Reading is always safe; a POST carries an `Idempotency-Key`, so that the farm does once what was
    sent twice. `answer_s`: how long one request waits for an answer.

    `until`, of reading, is of the monotonic clock: when nobody waits for the answer any more.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        patience_s: float = 60.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self.patience_s = patience_s
        self.answer_s = ANSWER_S
        if _host_of(self.url) is None:
            raise NotConnected(f"{url!r}: expected the farm's address, {_EXAMPLE}")
        if token is not None and not (token.isascii() and token.isprintable()):
            raise NotConnected("the token has characters that no token has: copy it again")
        try:
            self._http = httpx.Client(
                base_url=self.url,
                headers={"Authorization": f"Bearer {token}"} if token else {},
                transport=transport,
            )
        except (ValueError, ImportError, OSError, httpx.InvalidURL) as error:
            raise NotConnected(
                f"the proxy or certificates that the environment names cannot be used ({error}): "
                "correct HTTP_PROXY, HTTPS_PROXY, ALL_PROXY or SSL_CERT_FILE"
            ) from None

    def close(self) -> None:
        """Give up the connection."""
        self._http.close()

    def get(self, path: str, *, until: float = math.inf, **query: JsonValue) -> AnsweredObject:
        """Return the JSON of an answer."""
        return self._json(self.send("GET", path, query=query, until=until))

    def post(
        self, path: str, body: Any = None, *, content: bytes | None = None, kind: str = JSON
    ) -> AnsweredObject:
        """Post JSON, or bytes of another kind; return the JSON of the answer."""
        if content is None:
            try:
                content = json.dumps({} if body is None else body, allow_nan=False).encode()
            except (TypeError, ValueError, RecursionError) as error:
                raise ClientError(f"the request body is not JSON: {error}") from None
        headers = {"Idempotency-Key": str(uuid.uuid4()), "Content-Type": kind}
        return self._json(self.send("POST", path, headers=headers, content=content))

    def items(self, path: str, **query: JsonValue) -> Iterator[dict[str, Any]]:
        """Yield the items of a list, page by page."""
        cursor: str | None = None
        while True:
            match self.get(path, **query, cursor=cursor):
                case {"items": list(found), "next": None | str() as following} if all(
                    isinstance(item, dict) for item in found
                ):
                    yield from found
                case _:
                    raise WrongServer(
                        f"{self.url} answers {API}{path} without a list of objects: is it a farm, "
                        "of this version?"
                    )
            cursor = following
            if cursor is None:
                return

    def linked(self, path: str, **query: JsonValue) -> Iterator[bytes]:
        """Yield the content of an answer and of its following pages (`Link: rel="next"`)."""
        parameters: Mapping[str, JsonValue] | None = query
        while parameters is not None:
            answer = self.send("GET", path, query=parameters)
            # It refers to the answer in turn: large contents would wait for the garbage collector.
            del answer.stream
            following = answer.links.get("next")
            # Only its query: whatever a link says, the token goes to this farm alone.
            parameters = None if following is None else dict(httpx.URL(following["url"]).params)
            yield answer.content

    def save(self, path: str, file: IO[bytes], *, answer_s: float) -> None:
        """Write the content of an answer to a file, in pieces.

        `answer_s`: how long the server may take until it begins to answer.
        """
        answer = self.send("GET", path, answer_s=answer_s, is_streamed=True)
        try:
            for piece in answer.iter_bytes():
                file.write(piece)
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise NotConnected(
                f"{self.url} has cut the connection within a file ({_cause(error)}): ask again"
            ) from None
        finally:
            answer.close()

    def stream(self, path: str, *, until: float = math.inf, **query: JsonValue) -> Iterator[str]:
        """Yield the lines of an answer that goes on, until the server ends it or it is cut.

        It ends early near `until`, since the next line may come later than that. Yields nothing if
        the server is away or has no room. The caller then reads again.
        """
        url = f"{API}{path}"
        line_s = min(_LINE_S, max(until - time.monotonic(), 0.001))
        try:
            with self._http.stream(
                "GET", url, params=_params(query), timeout=_timeout(line_s)
            ) as answer:
                if answer.status_code in _PASSING:
                    return
                if answer.status_code != httpx.codes.OK:
                    answer.read()
                    raise _refusal(answer)
                for line in answer.iter_lines():
                    yield line
                    if until - time.monotonic() < line_s:
                        return
        except (httpx.TransportError, httpx.DecodingError):
            return

    def send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, JsonValue] | None = None,
        until: float = math.inf,
        answer_s: float | None = None,
        is_streamed: bool = False,
        **parts: Any,
    ) -> httpx.Response:
        """Send a request to the API until it is answered.

        Raises:
            ClientError: it was refused, or the server did not answer in time.
        """
        url = httpx.URL(f"{API}{path}", params=_params(query or {}))
        return self._send_to(
            url,
            method,
            until=until,
            answer_s=self.answer_s if answer_s is None else answer_s,
            is_streamed=is_streamed,
            **parts,
        )

    def _send_to(
        self,
        url: httpx.URL,
        method: str,
        *,
        until: float,
        answer_s: float,
        is_streamed: bool,
        **parts: Any,
    ) -> httpx.Response:
        if self._http.is_closed:
            raise NotConnected("the connection was closed: connect() again")
        gives_up_at = min(time.monotonic() + self.patience_s, until)
        pause_s = _FIRST_PAUSE_S
        while True:
            problem: ClientError
            least_s = 0.0
            try:
                left_s = max(until - time.monotonic(), _LAST_ANSWER_S)
                timeout = _timeout(min(answer_s, left_s))
                request = self._http.build_request(method, url, timeout=timeout, **parts)
                answer = self._http.send(request, stream=is_streamed)
                if is_streamed and not answer.is_success:
                    answer.read()
            except httpx.DecodingError as error:
                raise WrongServer(
                    f"{self.url} answers {url.path} with what cannot be unpacked ({error})"
                ) from None
            except httpx.TransportError as error:
                problem = NotConnected(
                    f"{self.url} does not answer ({_cause(error)}): is the farm's web server "
                    "running, and its address right?"
                )
            else:
                waits = "Retry-After" in answer.headers
                if answer.status_code not in _PASSING and not (
                    answer.status_code == httpx.codes.CONFLICT and waits
                ):
                    return _checked(answer)
                problem = _refusal(answer)
                least_s = _seconds_of(answer.headers.get("Retry-After"))
            # Of many clients that lost one server not all may come back at once.
            wait_s = max(least_s, pause_s * random.uniform(0.5, 1.0))
            if time.monotonic() + wait_s > gives_up_at:
                raise problem
            time.sleep(wait_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _json(self, answer: httpx.Response) -> AnsweredObject:
        try:
            if answer.headers.get("Content-Type", "").partition(";")[0] == JSON:
                found = answer.json(object_hook=AnsweredObject)
                if isinstance(found, AnsweredObject):
                    return found
        except (ValueError, RecursionError):
            pass
        raise WrongServer(
            f"{self.url} answers {answer.request.url.path} without an object of JSON: is it a farm?"
        )


def _timeout(answer_s: float) -> httpx.Timeout:
    return httpx.Timeout(answer_s, connect=min(answer_s, _CONNECT_S))


def _host_of(url: str) -> str | None:
    """Return the host of a web address; None: it is none."""
    try:
        read = httpx.URL(url)
    except (httpx.InvalidURL, UnicodeError):
        return None
    # A password in it would show in every error.
    is_web = read.scheme in ("http", "https") and not read.userinfo
    return (read.host or None) if is_web else None


def _params(query: Mapping[str, JsonValue]) -> dict[str, str]:
    return {name: _text(value) for name, value in query.items() if value is not None}


def _text(value: JsonValue) -> str:
    if isinstance(value, Mapping):
        text = ",".join(f"{name}={each}" for name, each in value.items())
    elif isinstance(value, (list, tuple, set, frozenset, range)):
        text = ",".join(map(str, value))
    else:
        text = str(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise not_utf8(text) from None
    return text


def _checked(answer: httpx.Response) -> httpx.Response:
    if answer.is_success:
        return answer
    raise _refusal(answer)


def _refusal(answer: httpx.Response) -> ClientError:
    """Return what an answer that is no success means."""
    status = answer.status_code
    if answer.has_redirect_location:
        return WrongServer(
            f"{answer.request.url} leads to {answer.headers['Location'][:_LONGEST_TEXT]}: "
            "connect to the address at which the farm itself answers"
        )
    if answer.headers.get("Content-Type", "").partition(";")[0] != _PROBLEM:
        reason = answer.reason_phrase or "no such answer of a farm"
        if status in _PASSING:
            return NotConnected(
                f"{answer.request.url} answers {status} ({reason}): is the farm's web server "
                "running, behind whatever answers in its place?"
            )
        return WrongServer(
            f"{answer.request.url} answers {status} ({reason}): is it a farm, of this version?"
        )
    try:
        problem = dict(answer.json())
    except (TypeError, ValueError, RecursionError):
        return WrongServer(f"{answer.request.url} answers {status} with half an answer")
    detail, field = str(problem.get("detail") or problem.get("title")), problem.get("field")
    kind = {401: NotAuthorized, 403: NotAuthorized, 404: NoSuchThing}.get(status, RequestRefused)
    if status == httpx.codes.UNAUTHORIZED:
        detail += "; pass `token=`, or set BENCHFARM_TOKEN"
    return kind(detail, status=status, field=field)


def _cause(error: httpx.TransportError | httpx.DecodingError) -> str:
    return (str(error) or type(error).__name__)[:_LONGEST_TEXT]


def _seconds_of(retry_after: str | None) -> float:
    """Return how long to wait by `Retry-After`: seconds, or a date."""
    if retry_after is None:
        return 0.0
    try:
        return max(0.0, float(retry_after))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - time.time())
    except (ValueError, OverflowError):
        return 0.0
