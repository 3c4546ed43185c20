"""The JSON API: one file a resource. To add one, write its file and add one line here."""

from __future__ import annotations

from flask import Blueprint

from web.api import agents, health, jobs, measurements, metrics, recommendation, series, sweeps

RESOURCES: tuple[Blueprint, ...] = (
    sweeps.bp,
    jobs.bp,
    series.bp,
    agents.bp,
    measurements.bp,
    recommendation.bp,
    health.bp,
    metrics.bp,
)
