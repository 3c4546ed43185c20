"""Recognises the requests by which a live page updates itself.

A visible page requests itself again after every change, and says so by a header. Its data may be a
second old: `live.js` pauses for as long before the request, so it still shows the change. A
page that is loaded, or that follows a form, gets current data.
"""

from __future__ import annotations

from flask import request

LIVE_HEADER = "X-Live-Look"
LIFE_S = 1.0  # not above what live.js rests after a change


def is_live_request() -> bool:
    """Whether this request comes from a live page that updates itself."""
    return request.method == "GET" and LIVE_HEADER in request.headers
