"""The page that plans further measurements, so that a recommendation gets more certain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from flask import Blueprint, render_template
from flask.typing import ResponseReturnValue

from farm.configuration.sweep import DEFAULT_STEPS
from farm.errors import InvalidSpec
from farm.recommend.contracts import Objective, Question
from farm.recommend.service import FARM, settle
from web.access.scopes import costly
from web.advice.plans import DEFAULT_COUNT, DEFAULT_WARMUP_STEPS, Proposed, needing_maths, propose
from web.advice.questions import QUERY, given_question, read_objective, read_prices, read_question
from web.backend import backend, read_session
from web.parameters import read_from

if TYPE_CHECKING:
    from farm.recommend.plans.planning import Task

bp = Blueprint("plan", __name__)


@bp.get("/advice/plan")
@costly
def get_plan() -> ResponseReturnValue:
    """Show what to measure next for the question of this address. Query: as of `/advice`.

    It takes seconds to find out. Until then the page says so, and loads itself again.
    """
    given = given_question()
    given.setdefault("origin", FARM)
    query = read_from(given, QUERY)
    asked, objective = read_question(query), read_objective(query)
    prices = read_prices(query, backend().prices).usd_per_hour
    with read_session() as session:
        question, _ = settle(session, asked, backend().memory)
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
