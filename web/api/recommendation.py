"""GET /api/v1/recommendation: which configuration to train on."""

from __future__ import annotations

from http import HTTPStatus

from apiflask import APIBlueprint
from flask import jsonify
from flask.typing import ResponseReturnValue

from farm.recommend.contracts import Recommendation
from farm.recommend.service import recommend
from web import parameters
from web.access.scopes import costly
from web.advice.questions import (
    RecommendationParameters,
    read_objective,
    read_prices,
    read_question,
)
from web.api.schema.openapi import described
from web.backend import backend, read_session

bp = APIBlueprint("api_recommendation", __name__, url_prefix="/api/v1", tag="Advice")


@bp.get("/recommendation")
@costly
@described(
    bp,
    Recommendation,
    query=RecommendationParameters,
    refusals={HTTPStatus.NOT_FOUND: "Nothing of that origin is in this store."},
)
def get_recommendation() -> ResponseReturnValue:
    """Rank configurations by alpha * time_s + beta * cost_usd, best first. Reads only.

    Configurations that were not measured are predicted. If measurements have arrived since the last
    predictions, these are used while a thread renews them, and a warning says so.

    If no known configuration fits, `recommended` is null and `reason` says why; this is not an
    error.
    """
    query = parameters.read(RecommendationParameters)
    question, objective = read_question(query), read_objective(query)
    with read_session() as session:
        answer = recommend(
            session,
            question=question,
            objective=objective,
            prices=read_prices(query, backend().prices),
            cache=backend().recommender_cache,
        )
    return jsonify(answer.to_json())
