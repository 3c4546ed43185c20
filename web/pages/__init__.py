"""The HTML pages.

To add one, write its file and add one line here.
"""

from __future__ import annotations

from flask import Blueprint

from web.access import login
from web.pages import (
    accuracy,
    advice,
    agent,
    compare,
    dashboard,
    data,
    exports,
    importing,
    job,
    logs,
    new_sweep,
    plan,
    prediction,
    sweep,
    sweeps,
)

PAGES: tuple[Blueprint, ...] = (
    dashboard.bp,
    agent.bp,
    new_sweep.bp,
    sweeps.bp,
    compare.bp,
    sweep.bp,
    exports.bp,
    accuracy.bp,
    prediction.bp,
    job.bp,
    logs.bp,
    advice.bp,
    plan.bp,
    data.bp,
    importing.bp,
    login.bp,
)
