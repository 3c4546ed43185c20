"""The JSON API: one file a resource. To add one, write its file and add one line here.

Everything below /api/v1 describes itself, see `web.api.description`.
"""

from __future__ import annotations

from flask import Blueprint

from web.api import (
    agents,
    docs,
    events,
    health,
    jobs,
    logs,
    measurements,
    metrics,
    openapi,
    origins,
    plans,
    recommendation,
    series,
    sweeps,
)

RESOURCES: tuple[Blueprint, ...] = (
    sweeps.bp,
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
    docs.bp,
    health.bp,
    metrics.bp,
)
