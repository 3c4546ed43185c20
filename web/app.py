"""Build the web server's application: pages for people, JSON for programs."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta

import jinja2
import sqlalchemy as sa
from apiflask import APIFlask
from flask import Flask, Response, g, request
from flask.sessions import SecureCookieSessionInterface
from werkzeug.middleware.proxy_fix import ProxyFix

import farm
from farm.configuration.axes import AXES_BY_NAME, PROFILE_AXES, spec_values
from farm.configuration.learning_rate import learning_rate_of
from farm.configuration.scripts import workload_text
from farm.configuration.words import network_measured, network_words, setup_words
from farm.gang.lifecycle import JobState, active_job_count
from farm.measuring.measurement import STEP_TIME_NOTE
from farm.measuring.quantities import QUANTITIES_BY_NAME
from farm.settings.server import Settings
from farm.store.engine import make_engine
from farm.text import display, plurals
from web import backend, errors
from web.access import authorization
from web.api import RESOURCES, idempotency
from web.api.schema import openapi
from web.drawing import plotly
from web.live import page_cache
from web.pages import PAGES
from web.setup_text import configuration_words, size_words

# Browsers show it among their developers' tools (W3C, "Server Timing").
_TIMING_HEADER = "Server-Timing"


def create_app(settings: Settings, *, engine: sa.Engine | None = None) -> APIFlask:
    """Build the application; nothing is connected yet.

    The caller disposes of an engine that it passes; one made here lives as long as the process.

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
        # Not Strict: a link from another site to a page would ask for another sign-in. What
        # changes something needs the CSRF token, and is refused when it comes from elsewhere.
        SESSION_COOKIE_SAMESITE="Lax",
        PERMANENT_SESSION_LIFETIME=timedelta(hours=12),
        MAX_CONTENT_LENGTH=authorization.MAX_BODY_BYTES,
        MAX_FORM_MEMORY_SIZE=authorization.MAX_BODY_BYTES,
        MAX_FORM_PARTS=1000,  # the form of a new sweep has a part for each value
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
    _time_requests(app)
    authorization.install(app)
    idempotency.install(app)
    page_cache.install(app)
    _add_filters(app)
    for words in (
        *(setup_words, network_words, network_measured),
        *(size_words, configuration_words, spec_values),
    ):
        app.add_template_filter(words)
    app.add_template_filter(learning_rate_of)
    # A global, since imported macros do not see what a context processor gives.
    app.add_template_global(authorization.csrf_token)
    app.add_template_global(workload_text)
    app.add_template_global(lambda name: AXES_BY_NAME[name].title, "axis_title")
    app.add_template_global(lambda name: QUANTITIES_BY_NAME[name].title, "quantity_title")
    app.jinja_env.globals["network_axes"] = PROFILE_AXES
    # A name that a template misspells is an error, not an empty text.
    app.jinja_env.undefined = jinja2.StrictUndefined
    app.context_processor(_of_every_page)
    for blueprint in (*PAGES, *RESOURCES, plotly.bp):
        app.register_blueprint(blueprint)
    return app


class _Sessions(SecureCookieSessionInterface):
    """Signed cookies, marked `Secure` if the request came over TLS."""

    def get_cookie_secure(self, app: Flask) -> bool:
        return request.is_secure


def _of_every_page() -> dict[str, object]:
    return {
        **authorization.shown_access(),
        "now": backend.now(),
        "version": farm.__version__,
        "step_time_note": STEP_TIME_NOTE,
    }


def _time_requests(app: Flask) -> None:
    """Time every request from here to its answer; what is installed later is timed, too."""
    app.before_request(_begin_timing)
    app.after_request(_tell_time)


def _begin_timing() -> None:
    g.begun_s = time.perf_counter()


def _tell_time(response: Response) -> Response:
    # Of a stream it is the time until it begins.
    begun_s: float | None = g.get("begun_s")
    if begun_s is not None:  # None: refused before any hook
        response.headers[_TIMING_HEADER] = f"total;dur={(time.perf_counter() - begun_s) * 1000:.1f}"
    return response


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Write "1 agent", "2 agents"; see `farm.text.plurals.counted`."""
    return plurals.counted(number, noun, plural, write=display.count)


def state_shares(counts: Mapping[JobState, int]) -> Sequence[tuple[str, float]]:
    """Return the parts of a progress bar: the share of each state but `waiting`, in percent."""
    total = sum(counts.values()) or 1
    active = active_job_count(counts)
    parts = {
        "succeeded": counts[JobState.SUCCEEDED],
        "failed": counts[JobState.FAILED],
        "cancelled": counts[JobState.CANCELLED],
        "active": active,
    }
    return [(name, 100 * jobs / total) for name, jobs in parts.items() if jobs]


def _add_filters(app: Flask) -> None:
    """Make these functions filters of the templates."""
    for function in (
        display.duration,
        display.machine_hours,
        display.in_text,
        display.short_fingerprint,
        display.roughly,
        display.between,
        display.plus_minus,
        display.byte_count,
        display.byte_rate,
        display.bit_rate,
        display.percent,
        display.likely,
        display.count,
        counted,
        display.decimal,
        display.dollars,
        display.joules,
        display.clock,
        display.ago,
        state_shares,
    ):
        app.add_template_filter(function)
