"""GET /api/v1/measurements: what was measured, one item a finished job or imported cell."""

from __future__ import annotations

from apiflask import APIBlueprint
from flask import jsonify
from flask.typing import ResponseReturnValue

from farm.configuration.spec import MAX_GLOBAL_BATCH_SIZE, MAX_WORLD_SIZE
from farm.store.measurements.measurements import MeasurementFilter, list_measurements
from web import parameters
from web.api.schema import answers, shapes
from web.api.schema.description import described
from web.backend import read_session
from web.parameters import CURSOR, LIMIT

bp = APIBlueprint("api_measurements", __name__, url_prefix="/api/v1", tag="Measurements")

_SWEEP = parameters.row_id("sweep", "Of this sweep; leaves out imported ones.")
_ORIGIN = parameters.text("origin", "Of this origin: `farm`, or an imported study.")
_MODEL = parameters.text("model", "Of this model.")
_DATASET = parameters.text("dataset", "Of this data set.")
_STRATEGY = parameters.text("strategy", "Of this strategy.")
_INSTANCE_TYPE = parameters.text("instance_type", "On VMs of this type.")
_FINGERPRINT = parameters.text("fingerprint", "On hardware of this kind.")
_STATUS = parameters.text("status", "`ok`, or how they failed, such as `out_of_memory`.")
_WORLD_SIZE = parameters.whole("world_size", "With so many ranks.", high=MAX_WORLD_SIZE)
_BATCH_SIZE = parameters.whole(
    "global_batch_size", "With this global batch size.", high=MAX_GLOBAL_BATCH_SIZE
)
_PARAMETERS = (
    *(_SWEEP, _ORIGIN, _MODEL, _DATASET, _STRATEGY, _INSTANCE_TYPE, _FINGERPRINT, _STATUS),
    *(_WORLD_SIZE, _BATCH_SIZE, LIMIT, CURSOR),
)


@bp.get("/measurements")
@described(bp, answers.MeasurementList, parameters=_PARAMETERS)
def get_measurements() -> ResponseReturnValue:
    """List measurements by ascending id."""
    given = parameters.read(_PARAMETERS)
    limit = given[LIMIT]
    which = MeasurementFilter(
        sweep_id=given[_SWEEP],
        origin=given[_ORIGIN],
        model=given[_MODEL],
        dataset=given[_DATASET],
        strategy=given[_STRATEGY],
        instance_type=given[_INSTANCE_TYPE],
        fingerprint=given[_FINGERPRINT],
        status=given[_STATUS],
        world_size=given[_WORLD_SIZE],
        global_batch_size=given[_BATCH_SIZE],
    )
    with read_session() as session:
        found = list_measurements(session, which, after_id=given[CURSOR], limit=limit + 1)
    return jsonify(shapes.listed([shapes.measurement(m) for m in found], page_size=limit))
