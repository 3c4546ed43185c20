"""The page that compares two sweeps: differences beyond noise, and unmatched cells."""

from __future__ import annotations

from flask import Blueprint, render_template
from flask.typing import ResponseReturnValue
from sqlalchemy.orm import Session
from werkzeug.datastructures import MultiDict

from farm.cells.comparison import CHANCE_RATIO, by_difference
from farm.cells.table import SweepTable
from farm.errors import InvalidSpec
from farm.store.sweeps.sweeps import SweepSummary, list_sweeps, sweep_summary
from web import received
from web.access.scopes import costly
from web.backend import backend, read_session, sweep_reading
from web.sweep.cached_sweeps import cached_comparison

bp = Blueprint("compare", __name__)

_PAIRS_SHOWN = 50
_ALONE_SHOWN = 25
_SWEEPS_OFFERED = 50
_MOST_PAGES = 1_000_000


@bp.get("/sweeps/compare")
@costly
def get_compare() -> ResponseReturnValue:
    """Compare two sweeps. Query: `a` and `b`, their ids; `page`, from 1; `sort=difference`.

    Without both it asks which. Parameters that are empty, as forms send them, count as absent.
    """
    args = received.query("a", "b", "page", "sort")
    given = MultiDict({name: text for name, text in args.items() if text})
    sort = given.get("sort")
    if sort not in (None, "difference"):
        raise InvalidSpec("sort", sort, "difference, or nothing")
    page = received.whole(given, "page", high=_MOST_PAGES) or 1
    a_id, b_id = received.optional_id(given, "a"), received.optional_id(given, "b")
    if a_id is not None and a_id == b_id:
        raise InvalidSpec("b", b_id, "another sweep than a")
    with read_session() as session:
        offered = list_sweeps(session, limit=_SWEEPS_OFFERED)
        a, a_table = _sweep(session, a_id)
        b, b_table = _sweep(session, b_id)
    found = None
    if a_table is not None and b_table is not None:
        found = cached_comparison(backend().comparisons, (a_id, b_id), a_table, b_table)
    pairs = [] if found is None else found.pairs
    ordered = by_difference(pairs) if sort else pairs
    first = (page - 1) * _PAIRS_SHOWN
    return render_template(
        "compare.html",
        offered=[*offered, *(s for s in (a, b) if s is not None and s not in offered)],
        a=a,
        b=b,
        parts=[
            (summary.name, len(table.lines), table.totals.cell_count)
            for summary, table in ((a, a_table), (b, b_table))
            if summary is not None and table is not None and table.totals is not None
        ],
        found=found,
        pairs=ordered[first : first + _PAIRS_SHOWN],
        by_chance=CHANCE_RATIO * found.judged_count if found else 0.0,
        only_a=found.only_a[:_ALONE_SHOWN] if found else [],
        only_b=found.only_b[:_ALONE_SHOWN] if found else [],
        sort=sort,
        page=page,
        page_count=-(-len(pairs) // _PAIRS_SHOWN),
    )


def _sweep(session: Session, sweep_id: int | None) -> tuple[SweepSummary | None, SweepTable | None]:
    if sweep_id is None:
        return None, None
    summary = sweep_summary(session, sweep_id)
    return summary, sweep_reading(session, sweep_id).table
