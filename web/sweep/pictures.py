"""Caches the heat map and charts of a sweep's page for as long as its cells are unchanged.

To draw some hundred fields and marks takes longer than all the rest of the page.
"""

from __future__ import annotations

from flask import copy_current_request_context, render_template
from markupsafe import Markup

from farm.cells.choice import Choice
from farm.cells.table import SweepTable
from farm.charts.heat_map import heat_map
from farm.charts.sweep_figures import figures_of
from farm.processes.cache import Cache
from web.drawing.drawn import drawn
from web.drawing.paper import can_draw

_MANY_CELLS = 500
_LIFE_S = 10.0  # of pictures of so many cells, which each change would draw again


def pictures_of(cache: Cache, sweep_id: int, table: SweepTable, choice: Choice) -> Markup:
    """Return them as HTML, of many cells as they were some seconds ago. Mutates `cache`."""
    shown = choice.address(sort=None, show=None, cells=None, page=None)
    key = (sweep_id, *sorted(shown.items()))

    def draw() -> tuple[str, object]:
        return _draw(sweep_id, table, choice), table.token

    if len(table.lines) > _MANY_CELLS:
        renew = copy_current_request_context(draw)
        text, _ = cache.for_a_while(
            key, draw, keep_s=_LIFE_S, renew=renew, is_still_so=lambda it: it[1] is table.token
        )
    else:
        text, _ = cache.get(
            key, lambda _: draw(), is_good=lambda made: made.value[1] is table.token
        )
    return Markup(text)  # noqa: S704 (drawn as Markup)


def _draw(sweep_id: int, table: SweepTable, choice: Choice) -> str:
    heat = heat_map(table, choice)
    return render_template(
        "_sweep_pictures.html",
        sweep_id=sweep_id,
        choice=choice,
        heat=drawn(heat) if heat else None,
        figures={name: drawn(figure) for name, figure in figures_of(table, choice).items()},
        can_draw=can_draw(),
    )
