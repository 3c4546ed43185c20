"""What every route of the web server says of itself, and whose requests are counted together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from flask import Flask
from werkzeug.routing import Rule

from farm.keys.api_tokens import Scope
from tests.web.web_client import web_settings
from web.access.authentication import is_beyond_loopback
from web.access.authorization import own_address
from web.access.limits import SIGN_IN, address_key
from web.access.scopes import SAFE_METHODS
from web.app import create_app

OPEN_TO_EVERYBODY = {
    "/health/live",
    "/health/ready",
    "/login",
    "/logout",
    "/static/<path:filename>",
    "/static/plotly-<version>.min.js",
}


@pytest.fixture
def app() -> Flask:
    """Nothing is asked of it, so its store need not be one."""
    return create_app(web_settings(), engine=sa.create_engine("sqlite://"))


def _views(app: Flask) -> dict[str, tuple[bool, Callable[..., Any]]]:
    """Every endpoint's view, and whether it changes something."""
    return {
        rule.endpoint: (_is_change(rule), app.view_functions[rule.endpoint])
        for rule in app.url_map.iter_rules()
    }


def _is_change(rule: Rule) -> bool:
    return bool((rule.methods or set()) - SAFE_METHODS)


def test_every_route_that_changes_something_says_what_it_needs(app: Flask) -> None:
    silent = [
        endpoint
        for endpoint, (is_change, view) in _views(app).items()
        if is_change and not hasattr(view, "needed_scope")
    ]
    assert silent == []


def test_a_change_needs_more_than_reading(app: Flask) -> None:
    scopes = {
        endpoint: view.needed_scope  # type: ignore[attr-defined] # see above
        for endpoint, (is_change, view) in _views(app).items()
        if is_change and not endpoint.startswith("login.")
    }
    assert scopes
    assert set(scopes.values()) <= {Scope.SUBMIT, Scope.ADMIN}


def test_only_health_sign_in_and_static_files_are_there_for_everybody(app: Flask) -> None:
    for_everybody = {
        rule.rule
        for rule in app.url_map.iter_rules()
        if rule.endpoint == "static"
        or getattr(app.view_functions[rule.endpoint], "needed_scope", Scope.READ) is None
    }
    assert for_everybody == OPEN_TO_EVERYBODY


def test_the_endpoint_whose_failures_are_counted_exists(app: Flask) -> None:
    assert SIGN_IN in app.view_functions


@pytest.mark.parametrize(
    ("address", "key"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("192.0.2.7:4711", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::1", "2001:db8:1:2::/64"),
        ("[2001:db8:1:2::1]:4711", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        (None, "unreadable"),
        ("", "unreadable"),
        ("unknown", "unreadable"),
        ("evil\nline", "unreadable"),
        ("1.2.3.4.5", "unreadable"),
    ],
)
def test_the_addresses_of_one_user_are_counted_together(address: str | None, key: str) -> None:
    assert address_key(address) == key


@pytest.mark.parametrize("path", ["/", "/jobs/1?attempt=2", "/advice?model=a%20b&next=//x"])
def test_after_the_sign_in_one_gets_back_to_a_page_of_this_server(path: str) -> None:
    assert own_address(path) == path


@pytest.mark.parametrize(
    "text",
    [
        *("", "jobs", "//evil.example", "/\\evil.example", "\\\\evil.example"),
        "https://evil.example",
        *("javascript:alert(1)", "/a\nb", "/\tb", " /", "/\x00"),
    ],
)
def test_the_sign_in_leads_to_no_other_server(text: str) -> None:
    assert own_address(text) is None


@pytest.mark.parametrize(
    ("environ", "is_beyond"),
    [
        ({}, False),
        ({"FARM_WEB_HOST": "::1"}, False),
        ({"FARM_WEB_HOST": "localhost"}, False),
        ({"FARM_WEB_HOST": "0.0.0.0"}, True),
        ({"FARM_WEB_HOST": "bench.example.com"}, True),
        ({"FARM_PROXY_COUNT": "1"}, True),
    ],
)
def test_others_reach_a_server_that_listens_for_them_or_stands_behind_a_proxy(
    environ: dict[str, str], is_beyond: bool
) -> None:
    assert is_beyond_loopback(web_settings(**environ)) is is_beyond
