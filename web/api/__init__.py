"""The JSON API: one module for each resource.

To add one, write its file and add one line here.

Every endpoint below /api/v1 is described in the OpenAPI document, see `web.api.schema.openapi`.
"""

from __future__ import annotations

from flask import Blueprint

from web.api import (
    agents,
    bundles,
    events,
    health,
    jobs,
    logs,
    measurements,
    metrics,
    origins,
    plans,
    recommendation,
    series,
    sweeps,
)
from web.api.schema import openapi

RESOURCES: tuple[Blueprint, ...] = (
    sweeps.bp,
    bundles.bp,
    jobs.bp,
    series.bp,
    logs.bp,
    agents.bp,
    measurements.bp,
    origins.bp,
    recommendation.bp,
    plans.bp,
    events.bp,
    openapi.bp,
    health.bp,
    metrics.bp,
)
