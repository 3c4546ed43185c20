"""GET /api/v1/recommendation: which configuration to train on."""

from __future__ import annotations

from flask import Blueprint, jsonify
from flask.typing import ResponseReturnValue
from werkzeug.datastructures import MultiDict

from farm.core.spec import (
    MAX_GLOBAL_BATCH_SIZE,
    MAX_ONE_WAY_DELAY_S,
    MAX_STEPS,
    MAX_WORLD_SIZE,
    TrainingPass,
)
from farm.errors import InvalidSpec
from farm.recommend.contracts import Objective, Question
from farm.recommend.service import recommend
from web import params
from web.backend import backend, read_session

bp = Blueprint("api_recommendation", __name__, url_prefix="/api/v1")

_LARGEST = 1e12  # of weights, dollars and seconds: beyond any meaning, and far from overflow
_MAX_MBIT_PER_S = 1e6
_BYTES_PER_S_IN_ONE_MBIT_PER_S = 125_000
_QUESTION = (
    "origin",
    "model",
    "dataset",
    "pass",
    "global_batch_size",
    "one_way_delay_ms",
    "jitter_ms",
    "bandwidth_mbit_per_s",
    "packet_loss_percent",
    "epochs",
    "target_accuracy",
    "strategy",
    "world_sizes",
    "instance_types",
    "network",
)
_OBJECTIVE = ("alpha", "beta", "budget_usd", "deadline_s", "min_accuracy", "machines")


@bp.get("/recommendation")
def get_recommendation() -> ResponseReturnValue:
    """Rank configurations by alpha * time_s + beta * cost_usd, best first. Reads only.

    Query: `global_batch_size` is required; `origin` (default `farm`), `model`, `dataset`, `pass`,
    `one_way_delay_ms`, `jitter_ms`, `bandwidth_mbit_per_s` and `packet_loss_percent` say what is
    trained where, `epochs` or `target_accuracy` (a ratio) for how long; `strategy`, `world_sizes`,
    `instance_types` and `network`, each a list with commas, narrow down what is considered;
    `alpha` in 1/s and `beta` in 1/USD weigh time and cost; `budget_usd`, `deadline_s`,
    `min_accuracy` (a ratio) and `machines` (at hand) are limits.

    What was not measured as asked is predicted. Where measurements have arrived since, the last
    predictions are used while a thread renews them, and a warning says so.

    `recommended` is null, with a reason, where nothing known fits: an answer, not an error.

    Errors: 400 a parameter is missing or malformed; 404 no such origin.
    """
    args = params.query(*_QUESTION, *_OBJECTIVE)
    question, objective = _question(args), _objective(args)
    with read_session() as session:
        answer = recommend(
            session,
            question=question,
            objective=objective,
            prices=backend().prices,
            memory=backend().memory,
        )
    return jsonify(answer.to_json())


def _question(args: MultiDict[str, str]) -> Question:
    batch_size = params.whole(args, "global_batch_size", high=MAX_GLOBAL_BATCH_SIZE)
    if batch_size is None:
        raise InvalidSpec("global_batch_size", None, "a value: this parameter is required")
    bandwidth = params.number(
        args, "bandwidth_mbit_per_s", low=1e-3, high=_MAX_MBIT_PER_S, default=None
    )
    return Question(
        origin=params.short_text(args, "origin") or "farm",
        model=params.short_text(args, "model"),
        dataset=params.short_text(args, "dataset"),
        training_pass=params.choice(args, "pass", TrainingPass) or TrainingPass.FORWARD_BACKWARD,
        global_batch_size=batch_size,
        one_way_delay_s=(
            _at_least_0(args, "one_way_delay_ms", high=MAX_ONE_WAY_DELAY_S * 1000) / 1000
        ),
        jitter_s=_at_least_0(args, "jitter_ms", high=MAX_ONE_WAY_DELAY_S * 1000) / 1000,
        bandwidth_bytes_per_s=(
            None if bandwidth is None else bandwidth * _BYTES_PER_S_IN_ONE_MBIT_PER_S
        ),
        packet_loss_ratio=_at_least_0(args, "packet_loss_percent", high=99.9999) / 100,
        epochs=_epochs(args),
        target_accuracy_ratio=params.number(
            args, "target_accuracy", low=0.0, high=1.0, default=None
        ),
        strategies=params.texts(args, "strategy"),
        world_sizes=params.wholes(args, "world_sizes", high=MAX_WORLD_SIZE),
        instance_types=params.texts(args, "instance_types"),
        networks=params.texts(args, "network"),
    )


def _epochs(args: MultiDict[str, str]) -> int:
    epochs = params.whole(args, "epochs", high=MAX_STEPS)
    if epochs is not None and "target_accuracy" in args:
        raise InvalidSpec("epochs", epochs, "nothing beside target_accuracy")
    return epochs or 1


def _objective(args: MultiDict[str, str]) -> Objective:
    return Objective(
        alpha=_at_least_0(args, "alpha", high=_LARGEST, default=1.0),
        beta=_at_least_0(args, "beta", high=_LARGEST),
        budget_usd=params.number(args, "budget_usd", low=0.0, high=_LARGEST, default=None),
        deadline_s=params.number(args, "deadline_s", low=0.0, high=_LARGEST, default=None),
        min_accuracy_ratio=params.number(args, "min_accuracy", low=0.0, high=1.0, default=None),
        max_machine_count=params.whole(args, "machines", high=MAX_WORLD_SIZE),
    )


def _at_least_0(
    args: MultiDict[str, str], name: str, *, high: float, default: float = 0.0
) -> float:
    value = params.number(args, name, low=0.0, high=high, default=None)
    return default if value is None else value
