"""GET /api/v1/measurements: what was measured, one item a finished job or imported cell."""

from __future__ import annotations

from flask import Blueprint, jsonify
from flask.typing import ResponseReturnValue

from farm.core.spec import MAX_GLOBAL_BATCH_SIZE, MAX_WORLD_SIZE
from farm.store.measurements import Filter, list_measurements
from web import params
from web.api import shapes
from web.backend import read_session

bp = Blueprint("api_measurements", __name__, url_prefix="/api/v1")

_PARAMETERS = (
    "sweep",
    "origin",
    "model",
    "dataset",
    "strategy",
    "instance_type",
    "fingerprint",
    "status",
    "world_size",
    "global_batch_size",
    "limit",
    "cursor",
)


@bp.get("/measurements")
def get_measurements() -> ResponseReturnValue:
    """List measurements by ascending id.

    Query: `sweep` (an id), `origin`, `model`, `dataset`, `strategy`, `instance_type`,
    `fingerprint`, `status`, `world_size`, `global_batch_size`, `limit`, `cursor`.
    """
    args = params.query(*_PARAMETERS)
    limit, cursor = params.page_size(args), params.cursor(args)
    which = Filter(
        sweep_id=params.optional_id(args, "sweep"),
        origin=params.short_text(args, "origin"),
        model=params.short_text(args, "model"),
        dataset=params.short_text(args, "dataset"),
        strategy=params.short_text(args, "strategy"),
        instance_type=params.short_text(args, "instance_type"),
        fingerprint=params.short_text(args, "fingerprint"),
        status=params.short_text(args, "status"),
        world_size=params.whole(args, "world_size", high=MAX_WORLD_SIZE),
        global_batch_size=params.whole(args, "global_batch_size", high=MAX_GLOBAL_BATCH_SIZE),
    )
    with read_session() as session:
        found = list_measurements(session, which, after_id=cursor, limit=limit + 1)
    return jsonify(shapes.listed([shapes.measurement(m) for m in found], page_size=limit))
