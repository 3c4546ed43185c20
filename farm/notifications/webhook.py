"""Sends one message as JSON to a web address, signed so that the receiver can tell who sent it.

Headers, signature and secret are those of Standard Webhooks (https://www.standardwebhooks.com), for
which there are libraries in many languages. The id stays the same however often a message is sent.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import re
from email.utils import parsedate_to_datetime

import httpx
from httpx import codes

from farm.notifications.addresses import Endpoint
from farm.notifications.events import SECRET_PREFIX, SendOutcome
from farm.text.log_text import one_line

TIMEOUT_S = 15.0  # of a whole message, whatever the receiver does
_MOST_SHOWN = 200  # characters of an error
# Other refusals may be of one message, or be mended by the receiver within days.
_OVERLOADED = (codes.TOO_MANY_REQUESTS, codes.SERVICE_UNAVAILABLE)


def signature(secret: str, *, message_id: str, timestamp_s: int, body: bytes) -> str:
    """Return the value of the header `webhook-signature`: HMAC-SHA256 of id, time and body."""
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX))
    signed = f"{message_id}.{timestamp_s}.".encode() + body
    digest = hmac.new(key, signed, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


def send(
    endpoint: Endpoint,
    *,
    message_id: str,
    body: bytes,
    secret: str,
    timestamp_s: int,
    timeout_s: float = TIMEOUT_S,
) -> SendOutcome:
    """Send a message once. It is delivered if the receiver answers with a status of 200 to 299."""
    headers = {
        "host": endpoint.host_header,
        "content-type": "application/json",
        "user-agent": "Benchfarm",
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp_s),
        "webhook-signature": signature(
            secret, message_id=message_id, timestamp_s=timestamp_s, body=body
        ),
    }

    async def bounded() -> SendOutcome:
        # Limits of single reads would let a receiver hold this one byte by byte.
        async with asyncio.timeout(timeout_s):
            return await _post(endpoint, headers, body, timeout_s=timeout_s, now_s=timestamp_s)

    try:
        return asyncio.run(bounded())
    except TimeoutError:
        return SendOutcome(False, False, f"no answer within {timeout_s:g} s")
    except httpx.RemoteProtocolError:
        # Its text has the receiver's, which may repeat the path.
        return SendOutcome(False, False, "the answer breaks off, or is not HTTP")
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        reason = one_line(str(error) or type(error).__name__)
        return SendOutcome(False, False, reason[:_MOST_SHOWN])


async def _post(
    endpoint: Endpoint, headers: dict[str, str], body: bytes, *, timeout_s: float, now_s: int
) -> SendOutcome:
    # Without the environment: a proxy would connect in our place, to whatever the name is then.
    async with httpx.AsyncClient(
        trust_env=False, follow_redirects=False, timeout=timeout_s
    ) as client:
        request = client.stream(
            "POST",
            endpoint.url,
            content=body,
            headers=headers,
            # The certificate is the host's, and not that of its IP address.
            extensions={"sni_hostname": endpoint.host},
        )
        async with request as answer:
            # Nothing that the receiver says is shown: many repeat the path, with the token in it.
            description = (
                f"{answer.status_code} {codes.get_reason_phrase(answer.status_code)}".strip()
            )
            if answer.is_redirect:
                description = f"{description}: redirects are not followed"
            status = answer.status_code
            if status == codes.GONE:
                description = f"{description}: nothing is sent there any more"
            return SendOutcome(
                is_delivered=answer.is_success,
                is_available=status not in _OVERLOADED,
                description=description,
                is_gone=status == codes.GONE,
                pause_s=_seconds_of(answer.headers.get("retry-after"), now_s=now_s),
            )


def _seconds_of(retry_after: str | None, *, now_s: int) -> float:
    """Return how long to wait by `Retry-After`, seconds or a date; 0: it does not say."""
    if retry_after is None:
        return 0.0
    if re.fullmatch(r"\d{1,9}", retry_after, re.ASCII):
        return float(retry_after)
    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - now_s)
    except (ValueError, OverflowError):
        return 0.0
