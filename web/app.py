"""Build the web server's application: pages for people, JSON for programs."""

from __future__ import annotations

import secrets
from datetime import timedelta

import sqlalchemy as sa
from flask import Flask

import farm
from farm.config import Settings
from farm.recommend.kept.memory import Memory
from farm.recommend.prices import load_prices
from farm.store.engine import make_engine
from web import access, backend, display, errors
from web.api import RESOURCES
from web.pages import PAGES


def create_app(settings: Settings, *, engine: sa.Engine | None = None) -> Flask:
    """Build the application; nothing is connected yet.

    The caller disposes of an engine it hands in; one made here lives as long as the process.

    Raises:
        InvalidSpec: FARM_DATABASE_URL is no database URL, or FARM_PRICES no price table.
    """
    app = Flask("web")
    app.config.update(
        # Random for each process: a restart signs everybody out, and nothing has to be kept.
        SECRET_KEY=secrets.token_bytes(32),
        # Cookies know no ports, and two farms on one machine must not share a session.
        SESSION_COOKIE_NAME=f"benchfarm_{settings.web_port}",
        SESSION_COOKIE_HTTPONLY=True,
        SESSION_COOKIE_SAMESITE="Strict",
        PERMANENT_SESSION_LIFETIME=timedelta(hours=12),
        MAX_CONTENT_LENGTH=access.MAX_BODY_BYTES,
        MAX_FORM_MEMORY_SIZE=access.MAX_BODY_BYTES,
        MAX_FORM_PARTS=20,
    )
    app.json.sort_keys = False  # type: ignore[attr-defined] # the default provider has it
    behind = backend.Backend(
        settings=settings,
        engine=engine or make_engine(settings.database_url),
        memory=Memory.of_server(settings.home),
        prices=load_prices(settings.prices),
    )
    backend.install(app, behind)
    errors.install(app)
    access.install(app)
    display.install(app)
    # A global, since imported macros do not see what a context processor gives.
    app.add_template_global(access.csrf_token)
    app.context_processor(_of_every_page)
    for blueprint in (*PAGES, *RESOURCES):
        app.register_blueprint(blueprint)
    return app


def _of_every_page() -> dict[str, object]:
    return {
        "is_signed_in": access.is_signed_in(),
        "needs_token": backend.backend().settings.api_token is not None,
        "now": backend.now(),
        "version": farm.__version__,
    }
