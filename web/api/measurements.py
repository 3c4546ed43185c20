"""GET /api/v1/measurements: one item for each finished job or imported cell."""

from __future__ import annotations

from typing import Any

from apiflask import APIBlueprint
from flask import jsonify
from flask.typing import ResponseReturnValue

from farm.configuration.axes import AXES
from farm.store.measurements.measurements import MeasurementFilter, list_measurements
from farm.values.fields import Name
from web import parameters
from web.api.schema import answers, shapes
from web.api.schema.openapi import described
from web.backend import read_session
from web.parameters import CURSOR, LIMIT, Parameter

bp = APIBlueprint("api_measurements", __name__, url_prefix="/api/v1", tag="Measurements")

_SWEEP = parameters.row_id("sweep", "Of this sweep; leaves out imported ones.")
_ORIGIN = parameters.text("origin", "Of this origin: `farm`, or an imported study.")
_INSTANCE_TYPE = parameters.text("instance_type", "On VMs of this type.")
_FINGERPRINT = parameters.text("fingerprint", "On hardware of this kind.")
_STATUS = parameters.text("status", "`ok`, or how they failed, such as `out_of_memory`.")
_AXES = {axis: parameters.exactly(axis) for axis in AXES}
_PARAMETERS: tuple[Parameter[Any], ...] = (
    *(_SWEEP, _ORIGIN, _INSTANCE_TYPE, _FINGERPRINT, _STATUS),
    *_AXES.values(),
    *(LIMIT, CURSOR),
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
        instance_type=given[_INSTANCE_TYPE],
        fingerprint=given[_FINGERPRINT],
        status=given[_STATUS],
        axes={
            # A name is looked for as it was given: no measurement has one that is not printable.
            axis.field: value if isinstance(axis.type, Name) else axis.read(value, axis.name)
            for axis, parameter in _AXES.items()
            if (value := given[parameter]) is not None
        },
    )
    with read_session() as session:
        found = list_measurements(session, which, after_id=given[CURSOR], limit=limit + 1)
    return jsonify(shapes.listed([shapes.measurement(m) for m in found], page_size=limit))
