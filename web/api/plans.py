"""GET /api/v1/plan: what to measure next, as a sweep file."""

from __future__ import annotations

import dataclasses
import math
from http import HTTPStatus
from typing import TYPE_CHECKING

from apiflask import APIBlueprint
from flask import jsonify
from flask.typing import ResponseReturnValue

from farm.configuration.axes import DELAY
from farm.configuration.spec import (
    LARGEST,
    MAX_GLOBAL_BATCH_SIZE,
    MAX_STEPS,
    MAX_WORLD_SIZE,
)
from farm.configuration.sweep import DEFAULT_STEPS, MAX_SEED
from farm.errors import InvalidSpec
from farm.recommend.service import FARM
from farm.values.codec import to_json
from web import parameters
from web.access.scopes import costly
from web.advice.plans import DEFAULT_COUNT, DEFAULT_WARMUP_STEPS, Proposed, needing_maths, propose
from web.advice.questions import (
    ALPHA,
    BETA,
    INSTANCE_TYPES,
    ORIGIN,
    PRICES,
    STRATEGY,
    read_prices,
)
from web.api.schema import answers
from web.api.schema.openapi import described
from web.backend import backend
from web.errors import RefusedRequest
from web.parameters import Given

if TYPE_CHECKING:
    from farm.recommend.plans.planning import Task

bp = APIBlueprint("api_plans", __name__, url_prefix="/api/v1", tag="Advice")

_MOST_PROPOSALS = 100
_MOST_NAMED = 5000  # configurations; the planner looks at some hundred of them
PATIENCE_S = 10.0  # of a program, for which it is simpler to wait than to ask again
_RETRY_AFTER_S = 2

_MODEL = parameters.text("model", "Only this; needed where nothing is measured yet.")
_DATASET = parameters.text("dataset", "Only this; needed where nothing is measured yet.")
_FINGERPRINT = parameters.text("fingerprint", "Which hardware, by its first characters.")
_WORLD_SIZES = parameters.wholes(
    "world_sizes", "Such as 1,2,4; those that were measured.", high=MAX_WORLD_SIZE
)
_BATCH_SIZES = parameters.wholes(
    "global_batch_sizes", "Such as 64,256; those that were measured.", high=MAX_GLOBAL_BATCH_SIZE
)
_DELAYS = parameters.numbers(
    "one_way_delays_ms",
    "Such as 0,20,100; those that were measured.",
    low=DELAY.low,
    high=DELAY.high,
)
_COUNT = parameters.whole(
    "next", "At most so many; 5, or 100 with `until_regret`.", high=_MOST_PROPOSALS
)
_UNTIL = parameters.number(
    "until_regret", "As many as it takes, such as 0.05 for 5 %.", low=0.0, high=LARGEST
)
_BUDGET = parameters.number("budget_usd", "The plan must not cost more.", low=0.0, high=LARGEST)
_HOURS = parameters.number(
    "budget_machine_hours", "The same where there are no prices.", low=0.0, high=LARGEST
)
_STEPS = parameters.whole("steps", f"Of a measurement; {DEFAULT_STEPS}.", high=MAX_STEPS)
_WARMUP = parameters.whole(
    "warmup_steps", f"Before them; {DEFAULT_WARMUP_STEPS}.", low=0, high=MAX_STEPS
)
_SEED = parameters.whole("seed", "Decides between equals; 0.", low=0, high=MAX_SEED)
_PARAMETERS = (
    *(ORIGIN, _MODEL, _DATASET, _FINGERPRINT, STRATEGY, _WORLD_SIZES, _BATCH_SIZES, _DELAYS),
    *(INSTANCE_TYPES, _COUNT, _UNTIL, _BUDGET, _HOURS, PRICES, ALPHA, BETA),
    *(_STEPS, _WARMUP, _SEED),
)


@bp.get("/plan")
@costly
@described(
    bp,
    answers.Plan,
    parameters=_PARAMETERS,
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
    given = parameters.read(_PARAMETERS)
    origin = given[ORIGIN] or FARM
    proposed = propose(
        _task(given), origin=origin, fingerprint=given[_FINGERPRINT], patience_s=PATIENCE_S
    )
    if proposed is None:
        raise RefusedRequest(
            HTTPStatus.SERVICE_UNAVAILABLE,
            "the plan is still being made: ask again",
            headers={"Retry-After": str(_RETRY_AFTER_S)},
        )
    return jsonify(_shape(proposed, origin=origin))


def _task(given: Given) -> Task:
    with needing_maths():
        from farm.recommend.plans.grid import Axes
        from farm.recommend.plans.planning import Task

    axes = Axes(
        strategies=given[STRATEGY],
        world_sizes=given[_WORLD_SIZES],
        global_batch_sizes=given[_BATCH_SIZES],
        one_way_delays_s=tuple(DELAY.read(value, _DELAYS.name) for value in given[_DELAYS]),
        instance_types=given[INSTANCE_TYPES],
    )
    named = math.prod(max(1, len(axis)) for axis in dataclasses.astuple(axes))
    if named > _MOST_NAMED:
        expected = f"axes that cross to at most {_MOST_NAMED} configurations"
        raise InvalidSpec("world_sizes", named, expected)
    until, steps, warmup_steps = given[_UNTIL], given[_STEPS], given[_WARMUP]
    return Task(
        axes=axes,
        model=given[_MODEL],
        dataset=given[_DATASET],
        count=given[_COUNT] or (DEFAULT_COUNT if until is None else _MOST_PROPOSALS),
        until_regret_ratio=until,
        budget_usd=given[_BUDGET],
        budget_machine_hours=given[_HOURS],
        step_count=DEFAULT_STEPS if steps is None else steps,
        warmup_step_count=DEFAULT_WARMUP_STEPS if warmup_steps is None else warmup_steps,
        prices_usd_per_hour=read_prices(given, backend().prices).usd_per_hour,
        alpha=given[ALPHA],
        beta=given[BETA],
        seed=given[_SEED] or 0,
    )


def _shape(proposed: Proposed, *, origin: str) -> dict[str, object]:
    planned, chosen = proposed.planned, proposed.planned.plan
    return {
        "origin": origin,
        "fingerprints": list(proposed.fingerprints),
        "proposals": to_json(chosen.proposals),
        "question_count": chosen.choice_count,
        "regret_before_ratio": chosen.regret_before_ratio,
        "regret_after_ratio": chosen.regret_after_ratio,
        "cost": chosen.cost,
        "cost_unit": planned.cost_unit,
        "stopped_because": chosen.stopped_because,
        "considered_count": planned.considered_count,
        "grid_count": planned.grid_count,
        "sweep": proposed.sweep,
    }
