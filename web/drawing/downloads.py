"""Draws a sweep's charts for download by matplotlib in a separate process.

Styles of matplotlib are global to a process, so two threads would change each other's. Loading
matplotlib also takes a second, in which the server would answer no request.
"""

from __future__ import annotations

import functools
import importlib.util
import threading
from functools import partial
from http import HTTPStatus

from farm.charts.chart import Bars, Figure
from farm.charts.heat_map import HeatMap
from farm.processes.subprocess_call import run_in_subprocess
from web.errors import RefusedRequest

# One at a time: each needs a processor, and 100 MB.
_drawing = threading.Lock()
_TURN_LIMIT_S = 10.0  # who waits longer than this holds a thread that others want
_DRAWING_LIMIT_S = 60.0


@functools.cache
def can_draw() -> bool:
    """Tell whether matplotlib is installed here."""
    try:
        return importlib.util.find_spec("matplotlib") is not None
    except ValueError:  # it was taken away from this process
        return False


def picture_file(shown: Figure | Bars | HeatMap, form: str) -> bytes:
    """Return a chart as a file, "png" or "svg", after earlier requests are done.

    Raises:
        Refused: the earlier requests take too long; ask again.
    """
    if not _drawing.acquire(timeout=_TURN_LIMIT_S):
        raise RefusedRequest(
            HTTPStatus.SERVICE_UNAVAILABLE,
            "other pictures are being drawn: ask again in a minute",
            headers={"Retry-After": "60"},
        )
    try:
        return run_in_subprocess(partial(_file, form=form), shown, limit_s=_DRAWING_LIMIT_S)
    finally:
        _drawing.release()


def _file(shown: Figure | Bars | HeatMap, *, form: str) -> bytes:
    # Imported in that process alone.
    from farm.charts.files.bars import draw_bars
    from farm.charts.files.charts import draw_charts
    from farm.charts.files.heat_maps import draw_map
    from farm.charts.files.style import file_of

    if isinstance(shown, HeatMap):
        return file_of(draw_map(shown), form)
    if isinstance(shown, Bars):
        return file_of(draw_bars([shown]), form)
    return file_of(draw_charts([shown], columns=1), form)
