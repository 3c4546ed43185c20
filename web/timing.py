"""How long the server was at work on a request, told with every answer.

In the header that browsers show among their developers' tools (W3C, "Server Timing").
"""

from __future__ import annotations

import time

from flask import Flask, Response, g

HEADER = "Server-Timing"


def install(app: Flask) -> None:
    """Time every request from here to its answer; what is installed later is timed, too."""
    app.before_request(_begin)
    app.after_request(_tell)


def _begin() -> None:
    g.begun_s = time.perf_counter()


def _tell(response: Response) -> Response:
    # Of a stream it is the time until it begins.
    begun_s: float | None = g.get("begun_s")
    if begun_s is not None:  # None: refused before any hook
        response.headers[HEADER] = f"total;dur={(time.perf_counter() - begun_s) * 1000:.1f}"
    return response
