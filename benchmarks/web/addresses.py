"""Lists every URL that a made-up farm serves, from the web server's own routes.

So a page that is new is measured the moment it is registered, or the benchmark says what it lacks.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

import sqlalchemy as sa

from benchmarks.large_farm.farm_attempts import agent_name
from benchmarks.large_farm.farm_data import Filled
from farm.errors import FarmError
from farm.importers import IMPORTERS
from farm.settings.server import load_settings
from farm.store.engine import reading
from farm.store.result_tables import MeasurementRow

QUESTION = {
    "origin": "farm",
    "model": "small_cnn",
    "dataset": "cifar10",
    "global_batch_size": 256,
    "one_way_delay_ms": 15,
    "bandwidth_mbit_per_s": 100,
}


class AddressGroup(enum.Enum):
    """What an address is held to."""

    PAGE = "page"
    API = "api"
    CHARTS = "charts"  # of the job of a day


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    route: str
    path: str
    group: AddressGroup


# What is held to no limit: files that never change, streams, and whole tables, pictures and logs to
# take away; the plan of the API, which takes the seconds that it needs; what hangs on a draft of a
# sweep, of which there is none; and the sign-in, which an open farm does not have.
_LEFT_OUT = frozenset(
    {
        "static",
        "plotly.get_plotly",
        "api_document.get_file",
        "exports.get_export",
        "exports.get_picture",
        "exports.get_samples",
        "login.get_login",
        "job.get_log",
        "new_sweep.get_preview",
        "new_sweep.get_file",
        "api_events.get_events",
        "api_plans.get_plan",
        "health.get_live",
        "health.get_ready",
    }
)


def addresses(engine: sa.Engine, filled: Filled) -> list[Address]:
    """Return what can be asked for, with an example of everything that a route names.

    Raises:
        FarmError: a route needs something that is not known here.
    """
    # Imported here: a benchmark says what it is without loading the web server.
    from web.app import create_app

    app = create_app(load_settings({"FARM_HOME": "/dev/null/farm"}), engine=engine)
    with reading(engine) as session:
        newest = session.scalar(sa.select(sa.func.max(MeasurementRow.id)))
    known = {
        "sweep_id": filled.sweep_id,
        "job_id": filled.measured_job_id,
        "agent_id": agent_name(0),
        "measurement_id": newest,
        "origin": "farm",
    }
    found = []
    for rule in app.url_map.iter_rules():
        if "GET" not in (rule.methods or ()) or rule.endpoint in _LEFT_OUT:
            continue
        group = (
            AddressGroup.API if rule.rule.startswith(("/api/", "/metrics")) else AddressGroup.PAGE
        )
        for query in _queries(filled).get(rule.endpoint, [{}]):
            named = {**known, **query}
            if missing := rule.arguments - set(named):
                lacking = ", ".join(sorted(missing))
                raise FarmError(f"{rule.rule}: benchmarks/web/addresses.py knows no {lacking}")
            found.append(_address(rule.rule, named, query, group))
    return found + _of_long_job(filled)


def _address(
    route: str, known: Mapping[str, object], query: Mapping[str, object], group: AddressGroup
) -> Address:
    path = route
    for name, value in known.items():
        path = path.replace(f"<{name}>", str(value))
    parameters = {name: value for name, value in query.items() if f"<{name}>" not in route}
    return Address(
        route=route, path=f"{path}?{urlencode(parameters)}" if parameters else path, group=group
    )


def _of_long_job(filled: Filled) -> list[Address]:
    routes = ("/jobs/<job_id>", "/api/v1/jobs/<job_id>/series")
    known = {"job_id": filled.long_job_id}
    return [_address(route, known, {}, AddressGroup.CHARTS) for route in routes]


def _queries(filled: Filled) -> Mapping[str, Sequence[Mapping[str, object]]]:
    """Return by endpoint what to ask for where one question is too few, or a query is needed."""
    jobs = [
        {"job_id": job_id}
        for job_id in (filled.measured_job_id, filled.failed_job_id, filled.waiting_job_id)
    ]
    origins = ["farm", *(publication.name for publication in IMPORTERS)]
    study = origins[-1]
    return {
        "sweep.get_sweep": [{}, {"page": 2}, {"metric": "interval", "sort": "-cost", "cells": 2}],
        "sweeps.get_sweeps": [{}, {"status": "running"}],
        "sweeps.get_compare": [{"a": filled.sweep_id, "b": filled.again_id}],
        "exports.get_chart": [{"name": "map"}],
        "new_sweep.get_new_sweep": [{}, {"like": filled.sweep_id}],
        "job.get_job": jobs,
        "api_jobs.get_job": jobs,
        "api_jobs.get_jobs": [{}, {"sweep": filled.sweep_id, "state": "waiting"}],
        "api_measurements.get_measurements": [{}, {"sweep": filled.sweep_id}],
        "advice.get_advice": [{}, QUESTION],
        "advice.get_plan": [QUESTION],
        "api_recommendation.get_recommendation": [QUESTION],
        "data.get_origin": [{"name": origin} for origin in origins],
        "data.get_remove": [{"name": study}],
        "api_origins.get_suspicious": [{"origin": study}],
    }
