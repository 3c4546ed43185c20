"""Origins of measurements, and the implausible measurements of each."""

from __future__ import annotations

from http import HTTPStatus

from apiflask import APIBlueprint
from flask import jsonify
from flask.typing import ResponseReturnValue

from farm.errors import NotFound
from farm.importers import source_text
from farm.recommend.implausible import doubts
from farm.store.measurements.imports import MAX_ORIGIN_CHARACTERS, OriginSummary
from farm.store.measurements.imports import origins as summaries
from farm.values.codec import to_json
from web import etags, parameters
from web.api.schema import answers, shapes
from web.api.schema.openapi import described
from web.backend import backend, read_session

bp = APIBlueprint("api_origins", __name__, url_prefix="/api/v1", tag="Measurements")


@bp.get("/origins")
@described(bp, answers.OriginList, is_cacheable=True)
def get_origins() -> ResponseReturnValue:
    """List the origins of measurements, this farm and imported ones, all on one page."""
    parameters.query()
    with read_session() as session:
        found = summaries(session)
    return etags.answer(jsonify(items=[_shape(summary) for summary in found], next=None))


@bp.get("/origins/<origin>/suspicious")
@described(
    bp,
    answers.SuspiciousList,
    is_cacheable=True,
    refusals={HTTPStatus.NOT_FOUND: "Nothing of that origin is in this store."},
)
def get_suspicious(origin: str) -> ResponseReturnValue:
    """List the suspicious measurements of an origin, with the evidence.

    They are not left out, but have less weight. Finding them needs the fitted model; while it is
    being fitted, `lacking` says so: ask again.
    """
    parameters.query()
    if len(origin) > MAX_ORIGIN_CHARACTERS or not origin.isprintable():
        raise NotFound(f"origin {origin[:80]!r} does not exist")
    with read_session() as session:
        found = doubts(session, origin=origin, cache=backend().recommender_cache, may_wait=False)
    response = jsonify(items=to_json(found.doubts), next=None, lacking=to_json(found.lacking))
    return response if found.lacking else etags.answer(response)


def _shape(summary: OriginSummary) -> answers.Origin:
    return {
        "origin": summary.origin,
        "source": source_text(summary.origin, summary.source),
        "measurement_count": summary.measurement_count,
        "failed_count": summary.failed_count,
        "workload_count": summary.workload_count,
        "fingerprint_count": summary.fingerprint_count,
        "first_at": shapes.instant(summary.first_at),
        "last_at": shapes.instant(summary.last_at),
    }
