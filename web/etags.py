"""Adds ETags to answers, and replies 304 to clients that have the current one.

A tag is a hash of the body. The answer is therefore computed all the same; only its transfer is
saved. In return a tag never claims that changed content is unchanged.
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
