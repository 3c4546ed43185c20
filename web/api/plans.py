"""GET /api/v1/plan: what to measure next, as a sweep file."""

from __future__ import annotations

import dataclasses
import math
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated

from apiflask import APIBlueprint
from flask import jsonify
from flask.typing import ResponseReturnValue
from pydantic import Field

from farm.configuration.axes import DELAY
from farm.configuration.spec import DEFAULT_WARMUP_STEPS
from farm.configuration.sweep import DEFAULT_STEPS
from farm.errors import InvalidSpec
from farm.recommend.contracts import DEFAULT_PLANNED, MAX_PLANNED
from web import parameters
from web.access.scopes import costly
from web.advice.plans import needing_maths, propose
from web.advice.questions import AdviceParameters, NotNegative, WorldSize, read_prices
from web.api.schema import answers
from web.api.schema.openapi import described
from web.backend import backend
from web.errors import RefusedRequest
from web.parameters import NUMBER, WHOLE, Listed, QueryText, bounds_of

if TYPE_CHECKING:
    from farm.recommend.plans.planning import Task

bp = APIBlueprint("api_plans", __name__, url_prefix="/api/v1", tag="Advice")

_MOST_NAMED = 5000  # configurations; the planner looks at some hundred of them
PATIENCE_S = 10.0  # of a program, for which it is simpler to wait than to ask again
_RETRY_AFTER_S = 2


class PlanParameters(AdviceParameters):
    """What may be measured next, and what it may cost."""

    model: QueryText | None = Field(
        None, description="Only this; needed where nothing is measured yet."
    )
    dataset: QueryText | None = Field(
        None, description="Only this; needed where nothing is measured yet."
    )
    fingerprint: QueryText | None = Field(
        None, description="Which hardware, by its first characters."
    )
    world_sizes: Listed[WorldSize] = Field(
        (), description="Such as 1,2,4; those that were measured."
    )
    global_batch_sizes: Listed[Annotated[int, bounds_of("global_batch_size"), WHOLE]] = Field(
        (), description="Such as 64,256; those that were measured."
    )
    one_way_delays_ms: Listed[Annotated[float, bounds_of("one_way_delay_ms"), NUMBER]] = Field(
        (), description="Such as 0,20,100; those that were measured."
    )
    next: Annotated[int, Field(ge=1, le=MAX_PLANNED), WHOLE] | None = Field(
        None,
        description=f"At most this many; {DEFAULT_PLANNED}, or {MAX_PLANNED} with `until_regret`.",
    )
    until_regret: NotNegative | None = Field(
        None, description="As many as it takes, such as 0.05 for 5 %."
    )
    budget_usd: NotNegative | None = Field(None, description="The plan must not cost more.")
    budget_machine_hours: NotNegative | None = Field(
        None, description="The same where there are no prices."
    )
    steps: Annotated[int, bounds_of("steps"), WHOLE] = Field(
        DEFAULT_STEPS, description=f"Of a measurement; {DEFAULT_STEPS}."
    )
    warmup_steps: Annotated[int, bounds_of("warmup_steps"), WHOLE] = Field(
        DEFAULT_WARMUP_STEPS, description=f"Before them; {DEFAULT_WARMUP_STEPS}."
    )
    seed: Annotated[int, bounds_of("seed"), WHOLE] = Field(
        0, description="Decides between equals; 0."
    )


@bp.get("/plan")
@costly
@described(
    bp,
    answers.Plan,
    query=PlanParameters,
    refusals={
        HTTPStatus.NOT_FOUND: "Nothing of that origin is in this store.",
        HTTPStatus.SERVICE_UNAVAILABLE: (
            "The plan is still being made: ask again, see `Retry-After`. Or the store does not "
            "answer, or the maths are missing."
        ),
    },
)
def get_plan() -> ResponseReturnValue:
    """Return what to measure next, as a sweep file. Reads only.

    `sweep` is a sweep file for `POST /sweeps`, with the reasons as comments.
    """
    query = parameters.read(PlanParameters)
    proposed = propose(
        _task(query), origin=query.origin, fingerprint=query.fingerprint, patience_s=PATIENCE_S
    )
    if proposed is None:
        raise RefusedRequest(
            HTTPStatus.SERVICE_UNAVAILABLE,
            "the plan is still being made: ask again",
            headers={"Retry-After": str(_RETRY_AFTER_S)},
        )
    return jsonify(proposed.to_json())


def _task(query: PlanParameters) -> Task:
    with needing_maths():
        from farm.recommend.plans.grid import Axes
        from farm.recommend.plans.planning import Task

    axes = Axes(
        strategies=query.strategy,
        world_sizes=query.world_sizes,
        global_batch_sizes=query.global_batch_sizes,
        one_way_delays_s=tuple(
            DELAY.read(value, "one_way_delays_ms") for value in query.one_way_delays_ms
        ),
        instance_types=query.instance_types,
    )
    named = math.prod(max(1, len(axis)) for axis in dataclasses.astuple(axes))
    if named > _MOST_NAMED:
        expected = f"axes that cross to at most {_MOST_NAMED} configurations"
        raise InvalidSpec("world_sizes", named, expected)
    return Task(
        axes=axes,
        model=query.model,
        dataset=query.dataset,
        count=query.next,
        until_regret_ratio=query.until_regret,
        budget_usd=query.budget_usd,
        budget_machine_hours=query.budget_machine_hours,
        step_count=query.steps,
        warmup_step_count=query.warmup_steps,
        prices_usd_per_hour=read_prices(query, backend().prices).usd_per_hour,
        alpha=query.alpha,
        beta=query.beta,
        seed=query.seed,
    )
