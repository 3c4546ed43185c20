"""Looks at a page that follows a change by itself: what they rest on may be a second old.

A page that is seen asks for itself again after every change, and says so by a header. It still
knows of the change that it follows: `live.js` rests as long before it looks. Whoever loads a page,
or comes from a form, gets everything anew.
"""

from __future__ import annotations

from flask import request

LIVE_HEADER = "X-Live-Look"
LIFE_S = 1.0  # not above what live.js rests after a change


def is_live_look() -> bool:
    """Whether this request is such a look: it changes nothing, and comes again."""
    return request.method == "GET" and LIVE_HEADER in request.headers
