"""Adds ETags to answers, and replies 304 to clients that have the current one.

The tag is of the body, so the answer is made all the same: what is saved is the way to the reader,
and a tag can never say that something is unchanged which is not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from flask import Response, request

# How the API's document describes the condition.
PARAMETER: Mapping[str, object] = {
    "name": "If-None-Match",
    "in": "header",
    "description": "The ETag of an answer that is at hand: 304 if it is still the newest.",
    "required": False,
    "schema": {"type": "string"},
}


def answer(response: Response) -> Response:
    """Add an ETag, and reply 304 if the client has this answer. Mutates the response."""
    response.set_etag(hashlib.sha256(response.get_data()).hexdigest()[:32])
    conditional = response.make_conditional(request)
    assert isinstance(conditional, Response)
    return conditional
