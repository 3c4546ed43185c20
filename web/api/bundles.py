"""POST /api/v1/bundles: uploads a training script and its files for a sweep to name."""

from __future__ import annotations

from http import HTTPStatus

from apiflask import APIBlueprint
from flask import jsonify
from flask.typing import ResponseReturnValue

from farm.configuration.bundle import MAX_SCRIPT_BUNDLE_BYTES, read_archive
from farm.keys.api_tokens import Scope
from farm.store.sweeps.bundles import add_bundle
from web import request_body
from web.access.authorization import takes_up_to
from web.access.local_user import check_may_send_scripts
from web.access.scopes import needs
from web.api.schema import sweep_answers
from web.api.schema.openapi import Body, described
from web.backend import now, write_session

bp = APIBlueprint("api_bundles", __name__, url_prefix="/api/v1", tag="Sweeps")


@bp.post("/bundles")
@takes_up_to(MAX_SCRIPT_BUNDLE_BYTES)
@needs(Scope.SUBMIT)
@described(
    bp,
    sweep_answers.SentBundle,
    status=HTTPStatus.CREATED,
    meaning="It is in the store; sending it again changes nothing.",
    body=Body(None, other_types={request_body.ZIP: "A ZIP file of the script's files."}),
    refusals={
        HTTPStatus.FORBIDDEN: "The farm has no tokens, and another user of its machine asks.",
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "The body is larger than 20 MB.",
        HTTPStatus.UNPROCESSABLE_ENTITY: "It is no ZIP file of this form.",
    },
)
def post_bundle() -> ResponseReturnValue:
    """Upload the files of a training script. A sweep names them by `bundle_sha256`.

    The body is an uncompressed ZIP file of at most 20 MB, with ordinary files only, whose paths
    stay below its own folder. Files that no job uses are removed after a day.
    """
    check_may_send_scripts()
    bundle = read_archive(request_body.posted_archive())
    with write_session() as session:
        add_bundle(session, bundle, now=now())
    answer: sweep_answers.SentBundle = {
        "bundle_sha256": bundle.sha256,
        "byte_count": len(bundle.archive),
        "files": list(bundle.files),
    }
    response = jsonify(answer)
    response.status_code = HTTPStatus.CREATED
    return response
