"""Serves Plotly's own script from its wheel.

Pages that show charts answer with `page_with_charts`. They are complete without the script, which
replaces what the server drew. Two measures keep the content policy strict:

- Plotly inserts style elements, which `style-src` forbids. It does not insert them if elements with
  the same id and class exist already, so the pages contain such elements, and charts.css has the
  rules. No inline style is allowed anywhere.
- To save a chart as PNG, Plotly paints an image that it made itself. Therefore `img-src` of these
  pages allows `blob:` and, for heat maps, `data:`. Images run no script.
"""

from __future__ import annotations

import functools
import gzip
import importlib.metadata
import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path

from flask import Blueprint, Response, make_response, render_template, request
from flask.typing import ResponseReturnValue

from farm.errors import NotFound
from web.access.authorization import CONTENT_POLICY
from web.access.scopes import for_everybody

bp = Blueprint("plotly", __name__)

CHART_POLICY = f"{CONTENT_POLICY}; img-src 'self' blob: data:"
_A_YEAR_S = 31_536_000
# A part of the script that brings rules of its own tests for an element with this id first.
_STYLE_OF_A_PART = re.compile(rb'createElement\("style"\);\w+\.id="([0-9a-f]{8,})"')


@dataclass(frozen=True, slots=True)
class Bundle:
    """The installed script.

    `style_ids`: ids of elements whose presence stops it from adding styles.
    """

    version: str
    path: Path
    style_ids: tuple[str, ...]


@functools.cache
def bundle() -> Bundle | None:
    """Return the script of the installed package; None where there is none."""
    # The package itself is not imported: that takes a second, and only its file is needed.
    spec = importlib.util.find_spec("plotly")
    if spec is None or not spec.submodule_search_locations:
        return None
    path = Path(spec.submodule_search_locations[0]) / "package_data" / "plotly.min.js"
    try:
        version = importlib.metadata.version("plotly")
        content = path.read_bytes()
    except (importlib.metadata.PackageNotFoundError, OSError):
        return None
    ids = tuple(found.decode() for found in dict.fromkeys(_STYLE_OF_A_PART.findall(content)))
    return Bundle(version, path, ids)


def page_with_charts(template: str, **values: object) -> Response:
    """Render a page that shows charts; its template imports `_charts.html`."""
    response = make_response(render_template(template, plotly=bundle(), **values))
    response.headers["Content-Security-Policy"] = CHART_POLICY
    return response


# Its address names the version, so browsers may keep it for good.
@bp.get("/static/plotly-<version>.min.js")
@for_everybody
def get_plotly(version: str) -> ResponseReturnValue:
    """Return the script, compressed where the client accepts that."""
    found = bundle()
    if found is None or version != found.version:
        raise NotFound(f"plotly {version[:40]!r}: not installed here")
    response = Response(content_type="text/javascript; charset=utf-8")
    if request.accept_encodings.quality("gzip") > 0:
        response.set_data(_compressed(found.path))
        response.headers["Content-Encoding"] = "gzip"
    else:
        response.set_data(found.path.read_bytes())
    response.headers["Cache-Control"] = f"public, max-age={_A_YEAR_S}, immutable"
    response.headers["Vary"] = "Accept-Encoding"
    return response


@functools.cache
def _compressed(path: Path) -> bytes:
    return gzip.compress(path.read_bytes(), compresslevel=6, mtime=0)
