"""The pages, which people read. To add one, write its file and add one line here."""

from __future__ import annotations

from flask import Blueprint

from web.pages import dashboard, job, login, sweep

PAGES: tuple[Blueprint, ...] = (dashboard.bp, sweep.bp, job.bp, login.bp)
