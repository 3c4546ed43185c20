"""The page that displays the OpenAPI document in Swagger UI.

It keeps the strict content policy: our own small script starts it, and nothing comes from
elsewhere. All that it needs beside 'self' are the pictures in its style sheet, which are data.
"""

from __future__ import annotations

from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from flask import Blueprint, make_response, render_template, send_file
from flask.typing import ResponseReturnValue

from farm.errors import NotFound
from web import received
from web.access.admission import CONTENT_POLICY

bp = Blueprint("api_docs", __name__, url_prefix="/api/v1/docs")

_WHEEL = "flask-openapi3-swagger"
_VERSION = version(_WHEEL)
_FILES = {
    "swagger-ui.css": "css/swagger-ui.css",
    "swagger-ui-bundle.js": "js/swagger-ui-bundle.js",
}
_A_YEAR_S = 365 * 86400
_POLICY = f"{CONTENT_POLICY}; img-src 'self' data:"


@bp.get("")
def get_docs() -> ResponseReturnValue:
    """Show this description as a page to try requests on."""
    received.query()
    page = make_response(render_template("docs.html", swagger_version=_VERSION))
    page.headers["Content-Security-Policy"] = _POLICY
    return page


@bp.get("/<wheel_version>/<name>")
def get_file(wheel_version: str, name: str) -> ResponseReturnValue:
    """Serve a file of the wheel; its address has the version, so it may be kept for ever."""
    if wheel_version != _VERSION or name not in _FILES:
        raise NotFound(f"{name[:80]!r}: there is no such file")
    folder = Path(str(files("flask_openapi3_swagger"))) / "templates" / "swagger"
    response = send_file(folder / _FILES[name], max_age=_A_YEAR_S)
    response.cache_control.immutable = True
    return response
