"""The map and the charts of a sweep as its page shows them, kept with the table of its cells.

To draw some hundred fields and marks takes longer than all the rest of the page.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from flask import render_template
from markupsafe import Markup

from web.figure_svg import drawn
from web.heat_map import heat_map
from web.heat_map_drawing import drawn_map
from web.sweep_choice import Choice
from web.sweep_figures import figures_of
from web.sweep_table import SweepTable

_MOST_KEPT = 8  # of each table: some hundred kilobytes each
_MANY_CELLS = 500
_LIFE_S = 10.0  # of pictures of so many cells, of which each change would draw them anew


@dataclass(frozen=True, slots=True)
class _Drawn:
    text: str
    token: object  # of the table
    at_s: float  # of the monotonic clock


def pictures_of(sweep_id: int, table: SweepTable, choice: Choice, *, is_busy: bool) -> Markup:
    """Return them as HTML, of many cells as they were some seconds ago.

    Threads that miss at once draw them twice, which harms nothing.
    """
    shown = choice.address(sort=None, show=None, cells=None, page=None)
    key = (is_busy, *sorted(shown.items()))
    known: _Drawn | None = table.pictures.get(key)
    now_s = time.monotonic()
    is_good = known is not None and (
        known.token is table.token
        or (len(table.lines) > _MANY_CELLS and now_s - known.at_s < _LIFE_S)
    )
    if known is None or not is_good:
        known = _Drawn(_draw(sweep_id, table, choice, is_busy=is_busy), table.token, now_s)
        if len(table.pictures) >= _MOST_KEPT:
            table.pictures.clear()
        table.pictures[key] = known
    return Markup(known.text)


def _draw(sweep_id: int, table: SweepTable, choice: Choice, *, is_busy: bool) -> str:
    heat = heat_map(table, choice)
    return render_template(
        "_sweep_pictures.html",
        sweep_id=sweep_id,
        choice=choice,
        is_busy=is_busy,
        heat=drawn_map(heat) if heat else None,
        figures={name: drawn(figure) for name, figure in figures_of(table, choice).items()},
    )
