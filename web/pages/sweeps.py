"""The pages about several sweeps: their list, newest first, and the comparison of two."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Annotated

from flask import Blueprint, render_template
from flask.typing import ResponseReturnValue
from pydantic import AfterValidator
from sqlalchemy.orm import Session

from farm.cells.comparison import CHANCE_RATIO, SweepComparison, by_difference, compare_sweeps
from farm.cells.table import SweepTable
from farm.errors import InvalidSpec
from farm.gang.lifecycle import SweepState
from farm.store.agents.agents import live_agent_count
from farm.store.queue.waiting_reasons import may_wait_for_agents, missing_agents
from farm.store.sweeps.sweeps import SweepStatus, SweepSummary, list_sweeps, sweep_summary
from web import parameters
from web.access.scopes import costly
from web.backend import backend, now, read_session, sweep_reading
from web.live.page_cache import shared
from web.overview.progress import cached_waiting_reasons, loads_of, sweep_cards
from web.parameters import PageNumber, Parameters, RowId

bp = Blueprint("sweeps", __name__)

_SHOWN = 25
_PAIRS_SHOWN = 50
_ALONE_SHOWN = 25
_SWEEPS_OFFERED = 50


def _known_sort(sort: str) -> str:
    if sort != "difference":
        raise ValueError("difference, or nothing")
    return sort


class SweepsParameters(Parameters):
    """Which sweeps are listed."""

    status: SweepStatus | None = None
    before: RowId | None = None


class CompareParameters(Parameters):
    """Which sweeps are compared, and how their pairs are listed."""

    a: RowId | None = None
    b: RowId | None = None
    page: PageNumber = 1
    sort: Annotated[str, AfterValidator(_known_sort)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compared:
    tokens: tuple[object, object]
    comparison: SweepComparison


@bp.get("/sweeps")
@shared
def get_sweeps() -> ResponseReturnValue:
    """List sweeps. Query: `status`; `before`, a sweep's id, for those that are older."""
    query, instant = parameters.read(SweepsParameters), now()
    status, before = query.status, query.before
    with read_session() as session:
        found = list_sweeps(session, before_id=before, limit=_SHOWN + 1, status=status)
        shown = found[:_SHOWN]
        ids = [s.sweep_id for s in shown if s.state is not SweepState.FINISHED]
        loads = loads_of(session, now=instant, sweep_ids=ids) if ids else {}
        may_lack_agents = any(map(may_wait_for_agents, shown))
        reasons = cached_waiting_reasons(session, now=instant) if may_lack_agents else {}
        agent_count = live_agent_count(
            session, now=instant, live_within_s=backend().settings.lease_s
        )
    return render_template(
        "sweeps.html",
        cards=sweep_cards(
            shown,
            loads,
            agent_count=agent_count,
            missing_agents=missing_agents(shown, reasons),
        ),
        status=status,
        statuses=list(SweepStatus),
        is_first_page=before is None,
        older_before=shown[-1].sweep_id if len(found) > _SHOWN else None,
        is_busy=any(s.status in (SweepStatus.RUNNING, SweepStatus.WAITING) for s in shown),
    )


@bp.get("/sweeps/compare")
@costly
def get_compare() -> ResponseReturnValue:
    """Compare two sweeps. Query: `a` and `b`, their ids; `page`, from 1; `sort=difference`.

    Without both it asks which. Parameters that are empty, as forms send them, count as absent.
    """
    query = parameters.read(CompareParameters, is_empty_absent=True)
    sort, page, a_id, b_id = query.sort, query.page, query.a, query.b
    if a_id is not None and a_id == b_id:
        raise InvalidSpec("b", b_id, "another sweep than a")
    with read_session() as session:
        offered = list_sweeps(session, limit=_SWEEPS_OFFERED)
        a, a_table = _sweep(session, a_id)
        b, b_table = _sweep(session, b_id)
    found = None
    if a_table is not None and b_table is not None:
        found = _comparison((a_id, b_id), a_table, b_table)
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


def _comparison(key: Hashable, a: SweepTable, b: SweepTable) -> SweepComparison:
    """Compare two sweeps, from what is kept of them by `key`."""
    tokens = a.token, b.token

    def make(before: _Compared | None) -> _Compared:
        found = compare_sweeps(a, b, before=None if before is None else before.comparison)
        return _Compared(tokens=tokens, comparison=found)

    cache = backend().comparisons
    return cache.get(key, make, is_good=lambda made: made.value.tokens == tokens).comparison
