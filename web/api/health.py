"""/health: reports whether the process is alive and ready."""

from __future__ import annotations

import logging
from http import HTTPStatus

from flask import Blueprint, jsonify
from flask.typing import ResponseReturnValue

from farm.broker.celery_app import check_broker
from farm.errors import FarmError, Unreachable
from farm.store.schema import check_schema
from web.access.scopes import for_everybody
from web.backend import backend
from web.errors import problem

logger = logging.getLogger(__name__)

bp = Blueprint("health", __name__)


@bp.get("/health/live")
@for_everybody
def get_live() -> ResponseReturnValue:
    """Answer while the web server runs."""
    return jsonify(status="live")


@bp.get("/health/ready")
@for_everybody
def get_ready() -> ResponseReturnValue:
    """Tell whether the store can be used (503 if not), and whether the broker answers.

    The broker is checked for some seconds at most, and only reported: pages and API work without
    it, since they only read and write the store.

    Errors: 503 the store cannot be used.
    """
    try:
        check_schema(backend().engine)
    except Unreachable as error:
        logger.warning("not ready: %s", error)
        return problem(
            HTTPStatus.SERVICE_UNAVAILABLE,
            "the store does not answer or has another schema: the web server's log says more",
            field="database",
        )
    broker = "ok"
    try:
        check_broker(backend().settings.broker_url)
    except FarmError:
        broker = "unreachable"
    return jsonify(status="ready", database="ok", broker=broker)
