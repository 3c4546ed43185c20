"""The pages that answer a question: what to train on, with evidence, and what to measure next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from flask import Blueprint, redirect, render_template, url_for
from flask.typing import ResponseReturnValue
from sqlalchemy.orm import Session
from werkzeug.datastructures import MultiDict

from farm.cells.option_table import option_columns, option_lines
from farm.charts.chart import Figure
from farm.configuration.sweep import DEFAULT_STEPS
from farm.errors import InvalidSpec, NotFound
from farm.measuring.measurement import OK
from farm.recommend.answering.measured import (
    ToldApart,
    distinctions,
    name_of,
    servers_words,
    told_apart_by,
)
from farm.recommend.contracts import MACHINE_STATUSES, Evidence, Objective, Question, Recommendation
from farm.recommend.service import FARM, recommend, settle
from farm.store.measurements.imports import origin_names
from farm.store.measurements.known_axes import known_axes
from farm.store.measurements.measurements import measurements_of
from farm.store.result_tables import MeasurementRow
from farm.text import display
from farm.text.columns import Column
from web.access.scopes import costly
from web.advice.answer_figures import MOST_WAYS, figures_of, way_names
from web.advice.plans import DEFAULT_COUNT, DEFAULT_WARMUP_STEPS, Proposed, needing_maths, propose
from web.advice.questions import (
    RecommendationParameters,
    given_question,
    is_as_given,
    price_fields,
    read_objective,
    read_prices,
    read_question,
)
from web.backend import backend, read_session
from web.drawing.drawn import Drawn, drawn
from web.drawing.plotly import page_with_charts
from web.errors import status_of
from web.parameters import read_from

bp = Blueprint("advice", __name__)

_OPTIONS_SHOWN = 40
_ROWS_SHOWN = 20
_FAILURES_SHOWN = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownAnswer:
    """An answer with what stands around it on the page. `rests_on`: what the best option does.

    `not_working`: what failed by itself, how, and how often. `kinds_left_out`: of machines and
    strategies, since so many lines cannot be told apart. `told_apart_by`: the fields in which
    options differ beside strategy and sizes. `columns`: of the table of options.
    """

    question: Question
    answer: Recommendation
    figures: Sequence[Drawn[Figure]]
    kinds_left_out: int
    told_apart_by: ToldApart
    columns: Sequence[tuple[Column, Sequence[str]]]
    rests_on: Sequence[MeasurementRow]
    not_working: Sequence[tuple[str, str, int]]


@bp.get("/advice")
@costly
def get_advice() -> ResponseReturnValue:
    """Answer the question in the address, by the names of the API's query; without one, ask it.

    Parameters that are empty, as forms send them, count as absent; without them the address is
    one to be kept, so that is where a form leads in the end.
    """
    given = given_question()
    if not is_as_given(given):
        kept: dict[str, Any] = given.to_dict()
        return redirect(url_for(".get_advice", **kept), HTTPStatus.SEE_OTHER)
    shown: ShownAnswer | None = None
    error: InvalidSpec | NotFound | None = None
    with read_session() as session:
        known = origin_names(session)
        # This farm is asked about first, unless it has measured nothing yet.
        given.setdefault("origin", known[0] if known else FARM)
        axes = known_axes(session, given["origin"])
        if set(given) - {"origin"}:  # that alone is how another origin is chosen
            try:
                shown = _answer(session, given)
            except (InvalidSpec, NotFound) as refusal:
                error = refusal
    page = page_with_charts(
        "advice.html",
        given=given,
        origins=known,
        axes=axes,
        shown=shown,
        error=error,
        error_field=error.field if isinstance(error, InvalidSpec) else None,
        price_fields=price_fields(given.get("prices", ""), axes, backend().prices),
        distinctions=distinctions,
        servers_words=servers_words,
        prices=sorted(backend().prices.by_type.values(), key=lambda p: p.instance_type),
        options_shown=_OPTIONS_SHOWN,
    )
    page.status_code = HTTPStatus.OK if error is None else status_of(error)
    return page


def _answer(session: Session, given: MultiDict[str, str]) -> ShownAnswer:
    query, cache = read_from(RecommendationParameters, given), backend().recommender_cache
    asked = read_question(query)
    answer = recommend(
        session,
        question=asked,
        objective=read_objective(query),
        prices=read_prices(query, backend().prices),
        cache=cache,
        may_wait=False,
    )
    question, knowledge = settle(session, asked, cache)
    best = answer.recommended
    return ShownAnswer(
        question=question,
        answer=answer,
        figures=[drawn(figure) for figure in figures_of(answer)],
        kinds_left_out=max(0, len(way_names(answer.options)) - MOST_WAYS),
        told_apart_by=told_apart_by(answer.options),
        columns=option_columns(option_lines(answer.options[:_OPTIONS_SHOWN], question)),
        rests_on=measurements_of(session, best.measurement_ids[:_ROWS_SHOWN]) if best else [],
        not_working=_not_working(
            knowledge.evidence.get(question.training_pass, ()), question.global_batch_size
        ),
    )


def _not_working(
    evidence: Sequence[Evidence], global_batch_size: int
) -> list[tuple[str, str, int]]:
    """Return what failed by itself, how and how often, beginning near the batch asked about."""
    known = [e for e in evidence if e.status != OK and e.status not in MACHINE_STATUSES]
    by = told_apart_by([e.configuration for e in known], ("instance_type", "setup", "network"))
    failed = Counter(
        (name_of(e.configuration, by), e.configuration.global_batch_size, e.status) for e in known
    )
    ordered = sorted(failed, key=lambda key: (abs(key[1] - global_batch_size), key))
    return [
        (f"{name}, batch {display.count(batch)}", status, failed[key])
        for key in ordered[:_FAILURES_SHOWN]
        for name, batch, status in [key]
    ]


if TYPE_CHECKING:
    from farm.recommend.plans.planning import Task


@bp.get("/advice/plan")
@costly
def get_plan() -> ResponseReturnValue:
    """Show what to measure next for the question of this address. Query: as of `/advice`.

    It takes seconds to find out. Until then the page says so, and loads itself again.
    """
    given = given_question()
    given.setdefault("origin", FARM)
    query = read_from(RecommendationParameters, given)
    asked, objective = read_question(query), read_objective(query)
    prices = read_prices(query, backend().prices).usd_per_hour
    with read_session() as session:
        question, _ = settle(session, asked, backend().recommender_cache)
    proposed: Proposed | None = None
    error: InvalidSpec | None = None
    try:
        proposed = propose(_task(question, objective, prices), origin=question.origin)
    except InvalidSpec as refusal:
        error = refusal
    return render_template(
        "plan.html", given=given, question=question, proposed=proposed, error=error
    )


def _task(question: Question, objective: Objective, prices: Mapping[str, float]) -> Task:
    """Return the task of planning on the axes of the question."""
    with needing_maths():
        from farm.recommend.plans.grid import Axes
        from farm.recommend.plans.planning import Task

    return Task(
        axes=Axes(
            strategies=question.strategies,
            world_sizes=question.world_sizes,
            global_batch_sizes=(question.global_batch_size,),
            one_way_delays_s=(question.one_way_delay_s,),
            instance_types=question.instance_types,
        ),
        model=question.model,
        dataset=question.dataset,
        count=DEFAULT_COUNT,
        step_count=DEFAULT_STEPS,
        warmup_step_count=DEFAULT_WARMUP_STEPS,
        prices_usd_per_hour=prices,
        alpha=objective.alpha,
        beta=objective.beta,
    )
