"""Build the web server's application: pages for people, JSON for programs."""

from __future__ import annotations

import secrets
from datetime import timedelta

import sqlalchemy as sa
from apiflask import APIFlask
from flask import Flask, request
from flask.sessions import SecureCookieSessionInterface
from werkzeug.middleware.proxy_fix import ProxyFix

import farm
from farm.configuration.axes import spec_values
from farm.measuring.measurement import STEP_TIME_NOTE
from farm.settings.server import Settings
from farm.store.engine import make_engine
from web import backend, errors, filters, timing
from web.access import admission
from web.api import RESOURCES, idempotency
from web.api.schema import openapi
from web.drawing import plotly
from web.live import shared_looks
from web.pages import PAGES
from web.setup_words import configuration_words, network_words, setup_words


def create_app(settings: Settings, *, engine: sa.Engine | None = None) -> APIFlask:
    """Build the application; nothing is connected yet.

    The caller disposes of an engine it hands in; one made here lives as long as the process.

    Raises:
        InvalidSpec: FARM_DATABASE_URL is no database URL, or FARM_PRICES no price table.
    """
    app = APIFlask(
        "web",
        title="Benchfarm",
        version=farm.__version__,
        # The document and its page are ours: with an ETag, and without a script of others.
        enable_openapi=False,
        json_errors=False,
    )
    app.config.update(
        # Random for each process: a restart signs everybody out, and nothing has to be kept.
        SECRET_KEY=secrets.token_bytes(32),
        # Cookies know no ports, and two farms on one machine must not share a session.
        SESSION_COOKIE_NAME=f"benchfarm_{settings.web_port}",
        SESSION_COOKIE_HTTPONLY=True,
        # Not Strict: who follows a link from elsewhere to a page would have to sign in anew. What
        # changes something needs the CSRF token, and is refused when it comes from elsewhere.
        SESSION_COOKIE_SAMESITE="Lax",
        PERMANENT_SESSION_LIFETIME=timedelta(hours=12),
        MAX_CONTENT_LENGTH=admission.MAX_BODY_BYTES,
        MAX_FORM_MEMORY_SIZE=admission.MAX_BODY_BYTES,
        MAX_FORM_PARTS=20,
    )
    app.session_interface = _Sessions()
    if settings.proxy_count:
        # Not X-Forwarded-Host: a proxy that does not set it hands on what anybody claims.
        count = settings.proxy_count
        behind_proxies = ProxyFix(app.wsgi_app, x_for=count, x_proto=count)
        app.wsgi_app = behind_proxies  # type: ignore[method-assign] # as Flask takes middleware
    app.json.sort_keys = False  # type: ignore[attr-defined] # the default provider has it
    behind = backend.make_backend(settings, engine or make_engine(settings.database_url))
    backend.install(app, behind)
    errors.install(app)
    openapi.install(app)
    timing.install(app)
    admission.install(app)
    idempotency.install(app)
    shared_looks.install(app)
    filters.install(app)
    for words in (setup_words, network_words, configuration_words, spec_values):
        app.add_template_filter(words)
    # A global, since imported macros do not see what a context processor gives.
    app.add_template_global(admission.csrf_token)
    app.context_processor(_of_every_page)
    for blueprint in (*PAGES, *RESOURCES, plotly.bp):
        app.register_blueprint(blueprint)
    return app


class _Sessions(SecureCookieSessionInterface):
    """Signed cookies that go over TLS alone wherever they came over it."""

    def get_cookie_secure(self, app: Flask) -> bool:
        return request.is_secure


def _of_every_page() -> dict[str, object]:
    return {
        **admission.shown_access(),
        "now": backend.now(),
        "version": farm.__version__,
        "step_time_note": STEP_TIME_NOTE,
    }
