"""Tokens with scopes at the web server: what each may, and how long it may."""

from __future__ import annotations

import datetime as dt

import pytest
import sqlalchemy as sa
from flask.testing import FlaskClient

from farm.gang.lifecycle import JobState
from farm.keys.api_tokens import Scope
from farm.store.access.api_tokens import remove_token, revoke_token
from farm.store.engine import reading, writing
from farm.store.tables import AgentRow, ApiToken, JobRow
from tests.web.web_client import (
    SWEEP,
    TOKEN,
    bearer,
    client_of,
    csrf_of,
    make_api_token,
    seed,
    sign_in,
)

# What needs each scope: method, address, and the form that does the same.
NEEDING = {
    Scope.READ: ("GET", "/api/v1/jobs", None),
    Scope.SUBMIT: ("POST", "/api/v1/jobs/4/cancel", "/jobs/4/cancel"),
    Scope.ADMIN: ("POST", "/api/v1/agents/a1/drain", "/agents/a1/drain"),
}
SUBMITTING = [
    "/api/v1/sweeps",
    "/api/v1/sweeps/1/cancel",
    "/api/v1/jobs/4/cancel",
    "/api/v1/jobs/2/retry",
]
ADMINISTERING = ["/api/v1/agents/a1/drain", "/api/v1/agents/a1/resume"]


@pytest.fixture
def tokens(engine: sa.Engine) -> dict[Scope, str]:
    """One of each scope, named as that."""
    return {scope: make_api_token(engine, scope.value, scope=scope) for scope in Scope}


@pytest.fixture
def client(engine: sa.Engine) -> FlaskClient:
    """Of a farm on loopback; what it asks for depends on the tokens in its store."""
    seed(engine)
    return client_of(engine)


def _revoke(engine: sa.Engine, name: str) -> None:
    with writing(engine) as session:
        revoke_token(session, name, now=dt.datetime.now(dt.UTC))


def _remove(engine: sa.Engine, name: str) -> None:
    with writing(engine) as session:
        remove_token(session, name)


def _last_used_at(engine: sa.Engine, name: str) -> dt.datetime | None:
    with reading(engine) as session:
        return session.scalar(sa.select(ApiToken.last_used_at).where(ApiToken.name == name))


def _is_changed(engine: sa.Engine) -> bool:
    with reading(engine) as session:
        is_cancelled = session.get_one(JobRow, 4).state is JobState.CANCELLED
        return is_cancelled or session.get_one(AgentRow, "a1").is_drained


@pytest.mark.parametrize("scope", list(Scope))
def test_a_bearer_may_do_what_its_scope_says(
    client: FlaskClient, tokens: dict[Scope, str], scope: Scope
) -> None:
    for needed, (method, path, _) in NEEDING.items():
        body: dict[str, object] | None = None if method == "GET" else {}
        answer = client.open(path, method=method, headers=bearer(tokens[scope]), json=body)
        assert answer.status_code == (200 if scope.includes(needed) else 403), path
        if answer.status_code == 403:
            assert answer.content_type == "application/problem+json"
            challenge = answer.headers["WWW-Authenticate"]
            assert 'error="insufficient_scope"' in challenge
            assert f'scope="{needed.value}"' in challenge
            assert f"scope {needed.value}" in answer.get_data(as_text=True)


@pytest.mark.parametrize("path", SUBMITTING)
def test_reading_is_not_enough_to_change_the_queue(
    client: FlaskClient, tokens: dict[Scope, str], path: str
) -> None:
    for scope, refused in ((Scope.READ, True), (Scope.SUBMIT, False)):
        body = SWEEP if path == "/api/v1/sweeps" else {}
        answer = client.post(path, json=body, headers=bearer(tokens[scope]))
        assert (answer.status_code == 403) is refused


@pytest.mark.parametrize("path", ADMINISTERING)
def test_only_an_administrator_steers_agents(
    client: FlaskClient, tokens: dict[Scope, str], path: str
) -> None:
    statuses = [
        client.post(path, json={}, headers=bearer(token)).status_code for token in tokens.values()
    ]
    assert statuses == [403, 403, 200]


@pytest.mark.parametrize("scope", list(Scope))
def test_a_session_may_do_what_the_scope_of_its_token_says(
    client: FlaskClient, engine: sa.Engine, tokens: dict[Scope, str], scope: Scope
) -> None:
    assert sign_in(client, tokens[scope]).headers["Location"] == "/"
    assert client.get("/").status_code == 200
    token = csrf_of(client)
    for needed, (_, _, form) in NEEDING.items():
        if form is not None:
            status = client.post(form, data={"csrf_token": token}).status_code
            assert status == (303 if scope.includes(needed) else 403), form
    headers = {"X-CSRF-Token": token}
    drained = client.post("/api/v1/agents/a1/drain", json={}, headers=headers).status_code
    assert drained == (200 if scope is Scope.ADMIN else 403)
    assert _is_changed(engine) is (scope is not Scope.READ)


def test_pages_show_the_buttons_of_who_may_press_them(
    client: FlaskClient, tokens: dict[Scope, str]
) -> None:
    shown = {}
    for scope, token in tokens.items():
        browser = client.application.test_client()
        sign_in(browser, token)
        page = browser.get("/").get_data(as_text=True)
        assert "Sign out" in page
        form = browser.get("/sweeps/new").get_data(as_text=True)
        shown[scope] = ('id="sweep"' in form, 'id="drain-a1"' in page)
    assert shown == {
        Scope.READ: (False, False),
        Scope.SUBMIT: (True, False),
        Scope.ADMIN: (True, True),
    }


def test_a_token_cannot_be_widened_by_its_holder(
    client: FlaskClient, tokens: dict[Scope, str]
) -> None:
    read = tokens[Scope.READ]
    for extra in (
        {"X-Scope": "admin"},
        {"X-Forwarded-User": "admin"},
        {"X-HTTP-Method-Override": "GET"},
        {"Cookie": "benchfarm_8080=eyJ0b2tlbl9pZCI6MH0.aaaa.bbbb"},
    ):
        headers = {**bearer(read), **extra}
        for path in ("/api/v1/agents/a1/drain", "/api/v1/agents/a1/drain?scope=admin"):
            answer = client.post(path, json={}, headers=headers)
            assert answer.status_code == 403
    two = f"Bearer {read}, Bearer {tokens[Scope.ADMIN]}"
    answer = client.post("/api/v1/agents/a1/drain", json={}, headers={"Authorization": two})
    assert answer.status_code == 401


def test_a_forged_session_is_none(client: FlaskClient, tokens: dict[Scope, str]) -> None:
    sign_in(client, tokens[Scope.READ])
    cookie = client.get_cookie("benchfarm_8080")
    assert cookie is not None
    payload, stamp, signature = cookie.value.rsplit(".", 2)
    for forged in (
        f"eyJ0b2tlbl9pZCI6MH0.{stamp}.{signature}",  # {"token_id":0}
        f"{payload}.{stamp}.",
        f"{payload}.{stamp}.{signature[::-1]}",
        "x" * 3000,
        "",
    ):
        client.set_cookie("benchfarm_8080", forged)
        assert client.get("/").headers["Location"] == "/login"


def test_signing_out_ends_the_session_for_copies_of_its_cookie_too(
    client: FlaskClient, tokens: dict[Scope, str]
) -> None:
    sign_in(client, tokens[Scope.READ])
    cookie = client.get_cookie("benchfarm_8080")
    assert cookie is not None
    other = client.application.test_client()
    sign_in(other, tokens[Scope.READ])
    client.post("/logout", data={"csrf_token": csrf_of(client, "/")})
    client.set_cookie("benchfarm_8080", cookie.value)
    assert client.get("/").headers["Location"] == "/login"
    assert other.get("/").status_code == 200


def test_revoking_a_token_ends_its_sessions_at_once(
    client: FlaskClient, engine: sa.Engine, tokens: dict[Scope, str]
) -> None:
    other = client.application.test_client()
    sign_in(client, tokens[Scope.SUBMIT])
    sign_in(other, tokens[Scope.ADMIN])
    csrf = csrf_of(client)
    _revoke(engine, "submit")
    headers = {"X-CSRF-Token": csrf}
    assert client.post("/api/v1/jobs/4/cancel", json={}, headers=headers).status_code == 401
    form = client.post("/jobs/4/cancel", data={"csrf_token": csrf})
    assert (form.status_code, form.headers["Location"]) == (303, "/login")
    assert client.get("/").headers["Location"] == "/login"
    assert client.get("/api/v1/jobs").status_code == 401
    assert not _is_changed(engine)
    assert other.get("/").status_code == 200
    refused = client.get("/api/v1/jobs", headers=bearer(tokens[Scope.SUBMIT]))
    assert refused.status_code == 401
    assert 'error="invalid_token"' in refused.headers["WWW-Authenticate"]


def test_an_expired_token_is_none(client: FlaskClient, engine: sa.Engine) -> None:
    now = dt.datetime.now(dt.UTC)
    token = make_api_token(engine, "short", expires_at=now + dt.timedelta(hours=1))
    sign_in(client, token)
    assert client.get("/").status_code == 200
    with writing(engine) as session:
        session.execute(sa.update(ApiToken).values(expires_at=now - dt.timedelta(seconds=1)))
    assert client.get("/").headers["Location"] == "/login"
    assert client.get("/api/v1/jobs", headers=bearer(token)).status_code == 401
    assert sign_in(client, token).status_code == 403


def test_a_session_never_becomes_that_of_a_later_token(
    client: FlaskClient, engine: sa.Engine, tokens: dict[Scope, str]
) -> None:
    sign_in(client, make_api_token(engine, "last", scope=Scope.READ))
    _remove(engine, "last")
    make_api_token(engine, "later", scope=Scope.ADMIN)
    assert client.get("/").headers["Location"] == "/login"


def test_a_scope_that_is_taken_back_is_gone_from_the_session_too(
    client: FlaskClient, engine: sa.Engine, tokens: dict[Scope, str]
) -> None:
    sign_in(client, tokens[Scope.ADMIN])
    csrf = csrf_of(client)
    with writing(engine) as session:
        session.execute(sa.update(ApiToken).values(scope=Scope.READ))
    assert client.post("/agents/a1/drain", data={"csrf_token": csrf}).status_code == 403


def test_the_first_token_closes_a_farm_and_its_end_does_not_open_it(
    client: FlaskClient, engine: sa.Engine
) -> None:
    assert client.get("/").status_code == 200
    make_api_token(engine, "first")
    assert client.get("/").headers["Location"] == "/login"
    assert client.post("/api/v1/jobs/4/cancel", json={}).status_code == 401
    _revoke(engine, "first")
    assert client.get("/").headers["Location"] == "/login"
    assert client.post("/api/v1/jobs/4/cancel", json={}).status_code == 401
    _remove(engine, "first")
    assert client.get("/").status_code == 200


@pytest.mark.parametrize("where", [{"FARM_WEB_HOST": "0.0.0.0"}, {"FARM_PROXY_COUNT": "1"}])
def test_beyond_loopback_a_farm_without_a_token_is_closed(
    client: FlaskClient, engine: sa.Engine, where: dict[str, str]
) -> None:
    exposed = client_of(engine, **where)
    assert exposed.get("/").headers["Location"] == "/login"
    assert exposed.get("/api/v1/jobs").status_code == 401
    assert exposed.post("/api/v1/jobs/4/cancel", json={}).status_code == 401
    assert exposed.get("/health/live").status_code == 200


def test_the_environments_token_stands_beside_those_of_the_store(
    engine: sa.Engine, tokens: dict[Scope, str]
) -> None:
    seed(engine)
    client = client_of(engine, FARM_API_TOKEN=TOKEN)
    for token in (TOKEN, tokens[Scope.ADMIN]):
        answer = client.post("/api/v1/agents/a1/drain", json={}, headers=bearer(token))
        assert answer.status_code == 200


def test_the_use_of_a_token_is_noted(
    client: FlaskClient, engine: sa.Engine, tokens: dict[Scope, str]
) -> None:
    begun_at = dt.datetime.now(dt.UTC)
    client.get("/api/v1/jobs", headers=bearer(tokens[Scope.READ])).close()
    noted = _last_used_at(engine, "read")
    assert noted is not None
    assert begun_at <= noted <= dt.datetime.now(dt.UTC)
    client.get("/api/v1/jobs", headers=bearer(tokens[Scope.READ])).close()
    assert _last_used_at(engine, "read") == noted
    assert _last_used_at(engine, "admin") is None
    sign_in(client, tokens[Scope.ADMIN])
    client.get("/").close()
    assert _last_used_at(engine, "admin") is not None


def test_a_page_asked_for_without_a_token_is_there_after_the_sign_in(
    client: FlaskClient, tokens: dict[Scope, str]
) -> None:
    answer = client.get("/jobs/1?attempt=1")
    assert answer.status_code == 303
    page = client.get(answer.headers["Location"]).get_data(as_text=True)
    assert 'name="next" value="/jobs/1?attempt=1"' in page
    back = sign_in(client, tokens[Scope.READ], next="/jobs/1?attempt=1")
    assert back.headers["Location"] == "/jobs/1?attempt=1"
    assert client.get("/login").headers["Location"] == "/"


@pytest.mark.parametrize(
    "hostile", ["//evil.example", "https://evil.example/", "/\\evil.example", "javascript:alert(1)"]
)
def test_a_sign_in_leads_to_nobody_elses_page(
    client: FlaskClient, tokens: dict[Scope, str], hostile: str
) -> None:
    page = client.get("/login", query_string={"next": hostile}).get_data(as_text=True)
    assert "evil" not in page
    assert "javascript" not in page
    answer = sign_in(client, tokens[Scope.READ], next=hostile)
    assert answer.headers["Location"] == "/"


def test_a_failed_sign_in_keeps_where_one_was_going(
    client: FlaskClient, tokens: dict[Scope, str]
) -> None:
    refused = sign_in(client, "wrong", next="/jobs/1")
    assert refused.status_code == 403
    assert 'name="next" value="/jobs/1"' in refused.get_data(as_text=True)


@pytest.mark.parametrize("query", ["\xff\xfe", "a=%ff", "x" * 5000, "next=//evil.example", "\x00"])
def test_a_query_that_is_no_text_leads_to_the_sign_in_all_the_same(
    client: FlaskClient, tokens: dict[Scope, str], query: str
) -> None:
    answer = client.get("/jobs/1", environ_overrides={"QUERY_STRING": query})
    assert answer.status_code == 303
    assert len(answer.headers["Location"]) < 4000
    assert answer.headers["Location"].startswith("/login")
    assert client.get(answer.headers["Location"]).status_code == 200
