"""The HTML pages.

To add one, write its file and add one line here.
"""

from __future__ import annotations

from flask import Blueprint

from web.pages import (
    accuracy,
    advice,
    agent,
    dashboard,
    data,
    exports,
    importing,
    job,
    login,
    new_sweep,
    prediction,
    sweep,
    sweeps,
)

PAGES: tuple[Blueprint, ...] = (
    dashboard.bp,
    agent.bp,
    new_sweep.bp,
    sweeps.bp,
    sweep.bp,
    exports.bp,
    accuracy.bp,
    prediction.bp,
    job.bp,
    advice.bp,
    data.bp,
    importing.bp,
    login.bp,
)
