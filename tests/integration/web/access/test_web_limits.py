"""How often one may ask, what a proxy may say of who asks, and what nobody is ever shown."""

from __future__ import annotations

import base64
import json
import logging

import pytest
import sqlalchemy as sa
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from farm.keys.api_tokens import Scope
from farm.store.access.api_tokens import remove_token
from farm.store.engine import writing
from tests.web.web_client import (
    TOKEN,
    bearer,
    client_of,
    csrf_of,
    make_api_token,
    seed,
    sign_in,
    without_limits,
)

WRONG = "wr0ng-and-not-to-be-seen"
HERE, ELSEWHERE = {"REMOTE_ADDR": "192.0.2.1"}, {"REMOTE_ADDR": "192.0.2.2"}


@pytest.fixture
def token(engine: sa.Engine) -> str:
    seed(engine)
    return make_api_token(engine, "ci", scope=Scope.SUBMIT)


@pytest.fixture
def client(engine: sa.Engine, token: str) -> FlaskClient:
    """Of a farm with both kinds of tokens."""
    return client_of(engine, FARM_API_TOKEN=TOKEN)


def _get(
    client: FlaskClient, token: str, *, environ: dict[str, str] | None = None, **headers: str
) -> TestResponse:
    every = {**bearer(token), **{name.replace("_", "-"): text for name, text in headers.items()}}
    return client.get("/api/v1/jobs", headers=every, environ_base=environ or HERE)


def _guess(client: FlaskClient, count: int, **headers: str) -> list[int]:
    return [_get(client, f"{WRONG} {i}", environ=None, **headers).status_code for i in range(count)]


def _refused(answer: TestResponse) -> str:
    """Check a refusal for too many requests; return its detail."""
    assert answer.status_code == 429
    assert 1 <= int(answer.headers["Retry-After"]) <= 60
    assert answer.content_type == "application/problem+json"
    body = json.loads(answer.data)
    assert (body["status"], body["title"]) == (429, "Too Many Requests")
    return str(body["detail"])


def test_an_address_may_present_ten_wrong_tokens_a_minute(client: FlaskClient) -> None:
    assert _guess(client, 12) == [401] * 10 + [429] * 2
    assert "wrong tokens from this address" in _refused(_get(client, WRONG))
    assert _get(client, WRONG, environ=ELSEWHERE).status_code == 401


def test_a_guess_beyond_the_limit_is_not_even_looked_at(client: FlaskClient) -> None:
    """Else the limit would only hide from a guesser when he was right."""
    _guess(client, 10)
    _refused(_get(client, TOKEN))
    assert _get(client, TOKEN, environ=ELSEWHERE).status_code == 200


def test_a_known_token_is_let_in_beside_one_that_was_revoked(
    client: FlaskClient, token: str
) -> None:
    _guess(client, 11)
    assert _get(client, token).status_code == 200


def test_right_tokens_are_never_counted_as_failures(client: FlaskClient, token: str) -> None:
    for _ in range(15):
        assert _get(client, TOKEN).status_code == 200
        assert _get(client, token).status_code == 200
    assert _guess(client, 1) == [401]


def test_wrong_sign_ins_count_with_wrong_bearers(client: FlaskClient, token: str) -> None:
    for _ in range(5):
        assert sign_in(client, WRONG).status_code == 403
    data = {"csrf_token": csrf_of(client, "/login")}
    local = {"REMOTE_ADDR": "127.0.0.1"}
    assert [_get(client, WRONG, environ=local).status_code for _ in range(6)] == [401] * 5 + [429]
    for presented in (WRONG, TOKEN, token):
        answer = client.post("/login", data={**data, "token": presented})
        assert answer.status_code == 429
        assert answer.content_type.startswith("text/html")
        assert 1 <= int(answer.headers["Retry-After"]) <= 60
    elsewhere = client.post("/login", data={**data, "token": TOKEN}, environ_base=ELSEWHERE)
    assert elsewhere.status_code == 303


def test_a_guess_at_the_address_of_a_form_counts_too(client: FlaskClient) -> None:
    def guess() -> int:
        headers = bearer(WRONG)
        return client.post("/jobs/4/cancel", headers=headers, environ_base=HERE).status_code

    assert [guess() for _ in range(11)] == [401] * 10 + [429]


def test_a_guess_counts_where_reading_is_open(engine: sa.Engine, token: str) -> None:
    client = client_of(engine, FARM_API_TOKEN=TOKEN, FARM_OPEN_READING="1")
    assert client.get("/api/v1/jobs").status_code == 200
    assert _guess(client, 11) == [401] * 10 + [429]
    _refused(_get(client, TOKEN))


def test_where_guesses_are_not_counted_none_is_answered(client: FlaskClient) -> None:
    for headers in ({}, bearer(WRONG), bearer(TOKEN)):
        page = client.application.test_client().get("/login", headers=headers)
        assert page.status_code == 200
        assert "Sign out" not in page.get_data(as_text=True)


def test_who_is_signed_in_stays_so_while_the_address_is_refused(
    client: FlaskClient, token: str
) -> None:
    sign_in(client, token)
    for _ in range(11):
        client.application.test_client().get("/api/v1/jobs", headers=bearer(WRONG))
    assert client.get("/").status_code == 200
    data = {"csrf_token": csrf_of(client)}
    assert client.post("/jobs/4/cancel", data=data).status_code == 303


def test_a_token_makes_120_changes_a_minute(
    client: FlaskClient, engine: sa.Engine, token: str
) -> None:
    def change(presented: str) -> TestResponse:
        return client.post("/api/v1/jobs/999/cancel", headers=bearer(presented))

    assert [change(token).status_code for _ in range(120)] == [404] * 120
    assert "changes with this token" in _refused(change(token))
    assert client.get("/api/v1/jobs", headers=bearer(token)).status_code == 200
    assert change(TOKEN).status_code == 404
    assert change(make_api_token(engine, "other", scope=Scope.SUBMIT)).status_code == 404
    # A browser that was signed in with the token has no count of its own.
    browser = client.application.test_client()
    sign_in(browser, token)
    form = browser.post("/jobs/4/cancel", data={"csrf_token": csrf_of(browser)})
    assert form.status_code == 429


def test_an_address_asks_for_60_recommendations_a_minute(client: FlaskClient, token: str) -> None:
    def ask(environ: dict[str, str], presented: str = token) -> TestResponse:
        path = "/api/v1/recommendation"
        return client.get(path, headers=bearer(presented), environ_base=environ)

    assert [ask(HERE).status_code for _ in range(60)] == [400] * 60
    _refused(ask(HERE))
    _refused(ask(HERE, TOKEN))
    assert ask(ELSEWHERE).status_code == 400
    assert _get(client, token).status_code == 200


def test_an_open_farm_limits_nothing(engine: sa.Engine) -> None:
    seed(engine)
    client = client_of(engine)
    for _ in range(125):
        assert client.post("/api/v1/jobs/999/cancel", json={}).status_code == 404
    for _ in range(65):
        assert client.get("/api/v1/recommendation").status_code == 400
        assert _get(client, WRONG).status_code == 200


def test_tests_can_do_without_limits(client: FlaskClient) -> None:
    assert _guess(without_limits(client), 12) == [401] * 12


def test_what_is_counted_is_forgotten(client: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory must not grow with every address that ever failed."""
    _guess(client, 10)
    (limiter,) = client.application.extensions["limiter"]
    [expires_at] = limiter.storage.expirations.values()
    monkeypatch.setattr("limits.storage.memory.time.time", lambda: expires_at + 1)
    assert _guess(client, 1) == [401]
    assert set(limiter.storage.storage.values()) == {1}


def test_without_a_proxy_nobody_says_for_whom_he_asks(client: FlaskClient) -> None:
    statuses = [
        _get(client, WRONG, X_Forwarded_For=f"198.51.100.{i}").status_code for i in range(11)
    ]
    assert statuses == [401] * 10 + [429]


def test_behind_a_proxy_each_client_is_counted_by_its_own_address(
    engine: sa.Engine, token: str
) -> None:
    client = client_of(engine, FARM_PROXY_COUNT="1")
    # What the client itself claims stands before what the proxy adds, and counts for nothing.
    one = [
        _get(client, WRONG, X_Forwarded_For=f"203.0.113.{i}, 198.51.100.1").status_code
        for i in range(11)
    ]
    assert one == [401] * 10 + [429]
    assert _guess(client, 1, X_Forwarded_For="198.51.100.2") == [401]
    assert _guess(client, 1, X_Forwarded_For="198.51.100.1:4711") == [429]


def test_the_users_of_one_ipv6_network_are_counted_together(engine: sa.Engine, token: str) -> None:
    client = client_of(engine, FARM_PROXY_COUNT="1")
    statuses = [
        _get(client, WRONG, X_Forwarded_For=f"2001:db8::{i}").status_code for i in range(11)
    ]
    assert statuses == [401] * 10 + [429]


@pytest.mark.parametrize(
    ("proxies", "scheme", "is_secure"),
    [("0", "https", False), ("1", "https", True), ("1", "http", False), ("1", "", False)],
)
def test_the_session_is_kept_to_tls_where_the_proxy_says_there_is_some(
    engine: sa.Engine, token: str, proxies: str, scheme: str, is_secure: bool
) -> None:
    client = client_of(engine, FARM_PROXY_COUNT=proxies)
    headers = {"X-Forwarded-Proto": scheme} if scheme else {}
    cookie = client.get("/login", headers=headers).headers["Set-Cookie"]
    assert ("Secure" in cookie) is is_secure
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie


def test_a_proxy_gives_the_server_no_name_that_it_does_not_have(
    engine: sa.Engine, token: str
) -> None:
    client = client_of(engine, FARM_PROXY_COUNT="1")
    sign_in(client, token)
    data = {"csrf_token": csrf_of(client)}
    for forwarded in ({}, {"X-Forwarded-Host": "evil.example"}):
        headers = {"Origin": "https://evil.example", **forwarded}
        assert client.post("/jobs/4/cancel", data=data, headers=headers).status_code == 403


def test_no_secret_is_logged_or_shown(
    client: FlaskClient, token: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    shown = []
    for presented in (WRONG, TOKEN, token):
        browser = client.application.test_client()
        for path in ("/api/v1/jobs", "/", "/metrics", "/api/v1/nothing", "/jobs/x"):
            answer = client.get(path, headers=bearer(presented))
            shown += [answer.get_data(as_text=True), str(answer.headers)]
        answer = sign_in(browser, presented)
        shown += [answer.get_data(as_text=True), str(answer.headers)]
        for path in ("/", "/jobs/1", "/sweeps/1", "/api/v1/jobs", "/jobs/x"):
            shown.append(browser.get(path).get_data(as_text=True))
        shown += [_payload(browser)]
        shown.append(repr(client.application.extensions["benchfarm"]))
    shown += [f"{record.getMessage()} {record.__dict__}" for record in caplog.records]
    assert any("wrong token presented" in text for text in shown)
    assert any("signed in" in text for text in shown)
    for secret in (WRONG, TOKEN, token, token[3:]):
        assert not any(secret in text for text in shown)


def _payload(browser: FlaskClient) -> str:
    """What the holder of the cookie can read in it."""
    cookie = browser.get_cookie("benchfarm_8080")
    assert cookie is not None
    payload = cookie.value.lstrip(".").split(".")[0]
    decoded = base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))
    return f"{cookie.value} {decoded!r}"


@pytest.mark.parametrize(
    "hostile",
    [
        *("", " ", "bf_", "bf_" + "A" * 42, "bf_" + "A" * 44, "x" * 7000),
        "'; DROP TABLE api_tokens; --",
        *("\u043a\u043b\u044e\u0447", "bf_" + "\u00e9" * 43, "null", "%00", "bf_" + "%" * 43),
    ],
)
def test_hostile_tokens_are_wrong_and_nothing_else(
    client: FlaskClient, token: str, hostile: str
) -> None:
    assert _get(client, hostile).status_code == 401
    refused = sign_in(client, hostile)
    assert refused.status_code == 403
    if len(hostile) > 5:
        assert hostile not in refused.get_data(as_text=True)
    assert _get(client, token).status_code == 200


def test_a_form_with_bytes_that_are_no_text_is_refused(client: FlaskClient) -> None:
    csrf = csrf_of(client, "/login").encode()
    for presented in (b"%00", b"%ff%fe", b"\xff\xfe", b"%ed%a0%80", b"a&token=b" * 10):
        answer = client.post(
            "/login",
            data=b"csrf_token=" + csrf + b"&token=" + presented,
            content_type="application/x-www-form-urlencoded",
        )
        assert answer.status_code == 403


def test_a_removed_token_is_as_wrong_as_any(
    client: FlaskClient, engine: sa.Engine, token: str
) -> None:
    with writing(engine) as session:
        remove_token(session, "ci")
    removed, never = _get(client, token), _get(client, f"bf_{'A' * 43}")
    assert removed.status_code == never.status_code == 401
    assert removed.data == never.data
