"""GET /api/v1/measurements: one item for each finished job or imported cell."""

from __future__ import annotations

from typing import Any

from apiflask import APIBlueprint
from flask import jsonify
from flask.typing import ResponseReturnValue
from pydantic import Field, create_model

from farm.configuration.axes import AXES
from farm.store.measurements.measurements import MeasurementFilter, list_measurements
from farm.values import fields
from web import parameters
from web.api.schema import answers, shapes
from web.api.schema.openapi import described
from web.backend import read_session
from web.parameters import PageParameters, QueryText, RowId

bp = APIBlueprint("api_measurements", __name__, url_prefix="/api/v1", tag="Measurements")


class _Filter(PageParameters):
    sweep: RowId | None = Field(None, description="Only of this sweep; excludes imported ones.")
    origin: QueryText | None = Field(
        None, description="Of this origin: `farm`, or an imported study."
    )
    instance_type: QueryText | None = Field(None, description="On VMs of this type.")
    fingerprint: QueryText | None = Field(None, description="On hardware of this kind.")
    status: QueryText | None = Field(
        None, description="`ok`, or how they failed, such as `out_of_memory`."
    )


_OF_AXES: dict[str, Any] = {
    axis.name: (
        parameters.of_axis(axis) | None,
        Field(None, description=f"With this value: {axis.meaning}."),
    )
    for axis in AXES
}
MeasurementsParameters = create_model("MeasurementsParameters", __base__=_Filter, **_OF_AXES)


@bp.get("/measurements")
@described(bp, answers.MeasurementList, query=MeasurementsParameters)
def get_measurements() -> ResponseReturnValue:
    """List measurements by ascending id."""
    query = parameters.read(MeasurementsParameters)
    which = MeasurementFilter(
        sweep_id=query.sweep,
        origin=query.origin,
        instance_type=query.instance_type,
        fingerprint=query.fingerprint,
        status=query.status,
        axes={
            # A name is looked for as it was given: no measurement has one that is not printable.
            axis.field: value if isinstance(axis.type, fields.Name) else axis.read(value, axis.name)
            for axis in AXES
            if (value := getattr(query, axis.name)) is not None
        },
    )
    with read_session() as session:
        found = list_measurements(session, which, after_id=query.cursor, limit=query.limit + 1)
    return jsonify(shapes.listed([shapes.measurement(m) for m in found], page_size=query.limit))
