"""Who may change something, and what other people's web pages cannot do."""

from __future__ import annotations

import json

import pytest
import sqlalchemy as sa
from flask.testing import FlaskClient

from farm.store.engine import reading
from farm.store.tables import SweepRow
from tests.web.web_client import SWEEP, TOKEN, bearer, client_of, csrf_of, seed, sign_in

BEARER = bearer(TOKEN)
CHANGES = [
    "/api/v1/sweeps",
    "/api/v1/sweeps/preview",
    "/api/v1/sweeps/1/cancel",
    "/api/v1/sweeps/1/pause",
    "/api/v1/sweeps/1/resume",
    "/api/v1/sweeps/1/retry",
    "/api/v1/jobs/4/cancel",
    "/api/v1/jobs/2/retry",
    "/api/v1/agents/a1/drain",
    "/api/v1/agents/a1/resume",
]
FORMS = [
    "/sweeps",
    "/sweeps/1/cancel",
    "/sweeps/1/retry",
    "/jobs/4/cancel",
    "/jobs/2/retry",
    "/agents/a1/drain",
    "/agents/a1/resume",
]
PAGES = ["/", "/sweeps/1", "/jobs/1", "/jobs/2", "/jobs/4", "/api/v1/jobs", "/health/live"]


@pytest.fixture
def open_client(engine: sa.Engine) -> FlaskClient:
    """Of a farm on loopback without a token."""
    seed(engine)
    return client_of(engine)


@pytest.fixture
def client(engine: sa.Engine) -> FlaskClient:
    """Of a farm with a token."""
    seed(engine)
    return client_of(engine, FARM_API_TOKEN=TOKEN)


@pytest.fixture
def reading_client(engine: sa.Engine) -> FlaskClient:
    """Of a farm with a token that lets everybody look."""
    seed(engine)
    return client_of(engine, FARM_API_TOKEN=TOKEN, FARM_OPEN_READING="1")


def _sweep_count(engine: sa.Engine) -> int:
    with reading(engine) as session:
        return session.scalar(sa.select(sa.func.count()).select_from(SweepRow)) or 0


@pytest.mark.parametrize("path", CHANGES)
def test_a_change_without_the_token_is_unauthorised(
    client: FlaskClient, engine: sa.Engine, path: str
) -> None:
    wrong = ("Bearer", "Bearer ", "Bearer wrong", f"Basic {TOKEN}", TOKEN, "Bearer tökén", "")
    for headers in ({}, *({"Authorization": value} for value in wrong)):
        answer = client.post(path, json=SWEEP if path == "/api/v1/sweeps" else {}, headers=headers)
        assert answer.status_code == 401, headers
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")
        assert answer.content_type == "application/problem+json"
        assert TOKEN not in answer.get_data(as_text=True)
    assert _sweep_count(engine) == 1


def test_a_change_with_the_token_is_done(client: FlaskClient, engine: sa.Engine) -> None:
    assert client.post("/api/v1/sweeps", json=SWEEP, headers=BEARER).status_code == 201
    assert client.post("/api/v1/jobs/4/cancel", headers=BEARER).status_code == 200
    assert _sweep_count(engine) == 2


def test_reading_needs_the_token_too(client: FlaskClient) -> None:
    for path in (*PAGES[:5], "/api/v1/jobs", "/metrics"):
        assert client.get(path, headers=BEARER).status_code == 200, path
        answer = client.get(path)
        assert answer.status_code == (303 if path in PAGES[:5] else 401), path
        assert "a sweep" not in answer.get_data(as_text=True)
    for method in ("HEAD", "OPTIONS"):
        assert client.open("/api/v1/jobs", method=method).status_code == 401


@pytest.mark.parametrize("path", ["/health/live", "/health/ready", "/login", "/static/style.css"])
def test_health_sign_in_and_static_files_need_no_token(client: FlaskClient, path: str) -> None:
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        answer = client.get(path, headers=headers)
        answer.close()
        assert answer.status_code == 200


def test_reading_can_be_left_open(reading_client: FlaskClient, engine: sa.Engine) -> None:
    found = {path: reading_client.get(path).status_code for path in PAGES}
    assert found == dict.fromkeys(PAGES, 200)
    assert reading_client.post("/api/v1/sweeps", json=SWEEP).status_code == 401
    assert _sweep_count(engine) == 1


def test_a_form_leads_to_the_sign_in_and_changes_nothing(
    client: FlaskClient, engine: sa.Engine
) -> None:
    for path in FORMS:
        answer = client.post(path, data={"sweep": "name = 'x'"})
        assert (answer.status_code, answer.headers["Location"]) == (303, "/login"), path
    assert _sweep_count(engine) == 1


def test_pages_offer_no_form_to_who_is_not_signed_in(reading_client: FlaskClient) -> None:
    for path in PAGES[:5]:
        assert 'method="post"' not in reading_client.get(path).get_data(as_text=True)


def test_the_token_signs_a_browser_in_and_out(client: FlaskClient, engine: sa.Engine) -> None:
    form = {"token": "wrong", "csrf_token": csrf_of(client, "/login")}
    refused = client.post("/login", data=form)
    assert refused.status_code == 403
    answer = client.post("/login", data={**form, "token": f" {TOKEN}\n"})  # as it was pasted
    assert (answer.status_code, answer.headers["Location"]) == (303, "/")
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie
    toml = '[[case]]\nmodel="mlp"\ndataset="digits"\nstrategy="single"\n'
    toml = 'name="t"\n' + toml + "world_size=1\nglobal_batch_size=32\n"
    data = {"sweep": toml, "csrf_token": csrf_of(client)}
    assert client.post("/sweeps", data=data).headers["Location"] == "/sweeps/2"
    client.post("/logout", data={"csrf_token": csrf_of(client)})
    assert client.post("/sweeps", data=data).headers["Location"] == "/login"
    assert _sweep_count(engine) == 2


def test_a_signed_in_browser_needs_the_csrf_header_for_the_api(client: FlaskClient) -> None:
    sign_in(client, TOKEN)
    assert client.post("/api/v1/sweeps", json=SWEEP).status_code == 403
    headers = {"X-CSRF-Token": csrf_of(client)}
    assert client.post("/api/v1/sweeps", json=SWEEP, headers=headers).status_code == 201


def test_a_session_of_another_process_is_worth_nothing(
    client: FlaskClient, engine: sa.Engine
) -> None:
    sign_in(client, TOKEN)
    cookie = client.get_cookie("benchfarm_8080")
    assert cookie is not None
    other = client_of(engine, FARM_API_TOKEN=TOKEN)
    other.set_cookie("benchfarm_8080", cookie.value)
    assert other.get("/").headers["Location"] == "/login"


@pytest.mark.parametrize("token", [None, "", "guessed"])
def test_a_form_without_its_csrf_token_is_refused(
    open_client: FlaskClient, token: str | None
) -> None:
    csrf_of(open_client)
    data = {} if token is None else {"csrf_token": token}
    statuses = {path: open_client.post(path, data=data).status_code for path in FORMS}
    assert statuses == dict.fromkeys(FORMS, 403)


@pytest.mark.parametrize(
    "content_type", ["application/x-www-form-urlencoded", "text/plain", "multipart/form-data", ""]
)
def test_what_another_sites_form_can_send_does_nothing(
    open_client: FlaskClient, content_type: str
) -> None:
    for path in CHANGES:
        answer = open_client.post(path, data=json.dumps(SWEEP), content_type=content_type)
        assert answer.status_code == 415, path
        assert open_client.post(path, content_type=content_type).status_code == 415, path


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:3000"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_what_a_browser_says_comes_from_elsewhere_is_refused(
    open_client: FlaskClient, engine: sa.Engine, headers: dict[str, str]
) -> None:
    assert open_client.post("/api/v1/sweeps", json=SWEEP, headers=headers).status_code == 403
    data = {"csrf_token": csrf_of(open_client)}
    assert open_client.post("/jobs/4/cancel", data=data, headers=headers).status_code == 403
    assert _sweep_count(engine) == 1


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_another_sites_page_may_lead_here_and_load_nothing(
    open_client: FlaskClient, site: str
) -> None:
    for mode, dest, status in (
        ("navigate", "document", 200),
        ("navigate", "iframe", 403),
        ("no-cors", "image", 403),
        ("cors", "empty", 403),
    ):
        fetch = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": dest}
        for path in ("/", "/api/v1/jobs"):
            assert open_client.get(path, headers=fetch).status_code == status, (path, mode)
        if status == 403:
            for path in ("/api/v1/events?sweep=1", "/api/v1/plan", "/advice"):
                assert open_client.get(path, headers=fetch).status_code == 403, (path, mode)


def test_our_own_pages_may_load_what_they_like(open_client: FlaskClient) -> None:
    for site in ("same-origin", "none"):
        fetch = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}
        assert open_client.get("/api/v1/jobs", headers=fetch).status_code == 200


def test_our_own_pages_may_post(open_client: FlaskClient) -> None:
    headers = {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}
    data = {"csrf_token": csrf_of(open_client)}
    answer = open_client.post("/jobs/4/cancel", data=data, headers=headers)
    assert answer.status_code == 303


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "10.0.0.1", "", "[::"]
)
def test_a_name_that_is_not_ours_reads_nothing_without_a_token(
    open_client: FlaskClient, host: str
) -> None:
    for path in ("/", "/api/v1/jobs", "/metrics"):
        answer = open_client.get(path, headers={"Host": host})
        assert 400 <= answer.status_code < 500
        assert "agents live" not in answer.get_data(as_text=True)


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8080", "127.0.0.1:9", "[::1]:8080", "farm.localhost"]
)
def test_loopback_names_are_ours(open_client: FlaskClient, host: str) -> None:
    assert open_client.get("/", headers={"Host": host}).status_code == 200


def test_with_a_token_a_proxy_may_give_the_server_any_name(client: FlaskClient) -> None:
    answer = client.get("/", headers={"Host": "bench.example.com", **BEARER})
    assert answer.status_code == 200


def test_no_cache_that_several_share_keeps_what_needs_a_token(client: FlaskClient) -> None:
    for path in ("/", "/login", "/api/v1/jobs", "/api/v1/origins", "/metrics", "/nothing"):
        headers = client.get(path, headers=BEARER).headers
        assert headers["Cache-Control"] == "private, no-cache", path
        assert {"Authorization", "Cookie"} <= set(headers["Vary"].split(", ")), path


def test_the_page_about_the_api_leads_people_to_the_sign_in(client: FlaskClient) -> None:
    answer = client.get("/api/v1/docs")
    assert answer.status_code == 303
    assert answer.headers["Location"].startswith("/login?next=")
    assert client.get("/api/v1/docs", headers=BEARER).status_code == 200
    assert client.get("/api/v1/openapi.json").status_code == 401


@pytest.mark.parametrize("path", ["/", "/api/v1/jobs", "/nothing", "/static/style.css", "/metrics"])
def test_every_response_carries_the_security_headers(open_client: FlaskClient, path: str) -> None:
    answer = open_client.get(path)
    answer.close()
    headers = answer.headers
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Referrer-Policy"] == "same-origin"
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'self'; ")
    assert "unsafe" not in policy
    assert "Access-Control-Allow-Origin" not in headers
    assert "Strict-Transport-Security" not in headers  # it speaks no TLS
