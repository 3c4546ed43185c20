"""Input that nobody should send: a clear 4xx as problem+json, never a 5xx, never an effect."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
import sqlalchemy as sa
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from farm.store.base import Table
from farm.store.engine import reading
from farm.store.tables import SweepRow
from tests.web.web_client import SWEEP, client_of, seed

SQL = "'; DROP TABLE jobs; --"
CASE_FIELDS = ("model", "dataset", "strategy", "world_size", "global_batch_size", "pass", "steps")


@pytest.fixture
def client(engine: sa.Engine) -> FlaskClient:
    seed(engine)
    return client_of(engine)


def _problem(answer: TestResponse, status: int) -> dict[str, Any]:
    """Check the shape of a refusal and return it."""
    assert answer.status_code == status, answer.get_data(as_text=True)
    assert answer.content_type == "application/problem+json"
    body: dict[str, Any] = json.loads(answer.data)
    assert body["status"] == status
    assert body["type"] == "about:blank"
    assert body["title"]
    assert body["detail"]
    assert "\n" not in body["detail"]
    return body


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"\xff\xfe", 400),
        (b"[" * 100_000, 400),
        (b'{"name": NaN}', 400),
        (b'{"name": ' + b"9" * 5000 + b"}", 400),
        (b"null", 422),
        (b"[]", 422),
        (b'"text"', 422),
        (b"{}", 422),
        (b'{"name": "x", "case": []}', 422),
        (b'{"name": "x", "case": [{}]}', 422),
        (b'{"name": "\\ud800", "case": [{}]}', 422),
        (b'{"name": "a\\u0000b", "case": [{}]}', 422),
    ],
)
def test_a_body_that_is_no_sweep_is_refused(client: FlaskClient, body: bytes, status: int) -> None:
    answer = client.post("/api/v1/sweeps", data=body, content_type="application/json")
    _problem(answer, status)


@pytest.mark.parametrize(("kind", "body"), [("json", b'{"name": %b}'), ("toml", b"name = %b")])
def test_a_number_of_thousands_of_digits_is_refused_in_words_for_its_sender(
    client: FlaskClient, kind: str, body: bytes
) -> None:
    answer = client.post(
        "/api/v1/sweeps", data=body % (b"9" * 5000), content_type=f"application/{kind}"
    )
    detail = _problem(answer, 400)["detail"]
    assert "a whole number of more than 4300 digits" in detail
    assert "sys." not in detail


@pytest.mark.parametrize("text", [b"name =", b"\xff", b"a=" + b"[" * 50_000, b"when = 1979-05-27"])
def test_toml_that_is_no_sweep_is_refused(client: FlaskClient, text: bytes) -> None:
    answer = client.post("/api/v1/sweeps", data=text, content_type="application/toml")
    assert answer.status_code in (400, 422)
    _problem(answer, answer.status_code)


def test_a_dotted_key_without_end_is_refused_before_it_is_parsed(client: FlaskClient) -> None:
    text = b"name = 1\n" + b"a." * 500_000 + b"a = 1"
    answer = client.post("/api/v1/sweeps", data=text, content_type="application/toml")
    assert "line 2" in _problem(answer, 400)["detail"]


@pytest.mark.parametrize("field", CASE_FIELDS)
def test_no_field_takes_nonsense(client: FlaskClient, engine: sa.Engine, field: str) -> None:
    nonsense: tuple[object, ...] = (
        SQL,
        "<script>",
        None,
        -1,
        1e308,
        10**30,
        True,
        {},
        [[]],
        "x" * 10_000,
    )
    for value in nonsense:
        sweep = copy.deepcopy(SWEEP)
        sweep["case"][0][field] = value  # type: ignore[index] # a table of its own
        problem = _problem(client.post("/api/v1/sweeps", json=sweep), 422)
        assert problem["field"].startswith(f"case[0].{field}")
        assert len(problem["detail"]) < 1000
    with reading(engine) as session:
        assert session.scalar(sa.select(sa.func.count()).select_from(SweepRow)) == 1


def test_a_sweep_of_a_billion_jobs_is_refused_before_they_are_built(client: FlaskClient) -> None:
    sweep = {**SWEEP, "repetitions": 1_000_000_000}
    problem = _problem(client.post("/api/v1/sweeps", json=sweep), 422)
    assert "at most" in problem["detail"]


def test_a_body_of_ten_megabytes_is_refused_everywhere(client: FlaskClient) -> None:
    body = b'{"name": "' + b"x" * 10_000_000 + b'"}'
    for path in (
        "/api/v1/sweeps",
        "/api/v1/sweeps/preview",
        "/api/v1/sweeps/1/pause",
        "/api/v1/jobs/1/cancel",
        "/api/v1/agents/a1/drain",
    ):
        _problem(client.post(path, data=body, content_type="application/json"), 413)
    page = client.post("/sweeps", data={"sweep": "x" * 10_000_000})
    assert page.status_code == 413


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/xml", "multipart/form-data", "text/html", ""]
)
def test_only_json_and_toml_are_taken(client: FlaskClient, content_type: str) -> None:
    for path in ("/api/v1/sweeps", "/api/v1/sweeps/preview"):
        answer = client.post(path, data=json.dumps(SWEEP), content_type=content_type)
        _problem(answer, 415)


@pytest.mark.parametrize(
    "bad_id",
    ["0", "-1", "x", "1.5", "1e3", "%20", "99", "9" * 30, "9" * 5000, "٣", SQL, "1%00", "<b>"],
)
def test_an_id_that_no_row_has_is_not_found(client: FlaskClient, bad_id: str) -> None:
    for kind in ("sweeps", "jobs"):
        _problem(client.get(f"/api/v1/{kind}/{bad_id}"), 404)
        _problem(client.post(f"/api/v1/{kind}/{bad_id}/cancel", json={}), 404)
        page = client.get(f"/{kind}/{bad_id}")
        assert page.status_code == 404
        assert "<b>" not in page.get_data(as_text=True)


def test_an_unknown_agent_is_not_found(client: FlaskClient) -> None:
    for agent_id in ("nobody", SQL, "x" * 500, "%00", "%0a", "<b>"):
        _problem(client.post(f"/api/v1/agents/{agent_id}/drain", json={}), 404)


@pytest.mark.parametrize("path", ["sweeps", "jobs", "measurements"])
def test_a_cursor_that_nobody_gave_is_refused(client: FlaskClient, path: str) -> None:
    for cursor in ("", "x", "0", "-1", "9" * 40, "1 OR 1=1", SQL, "\x00", "٣", "1.0"):
        answer = client.get(f"/api/v1/{path}", query_string={"cursor": cursor})
        assert _problem(answer, 400)["field"] == "cursor", cursor


@pytest.mark.parametrize(
    ("path", "field", "value"),
    [
        ("jobs", "state", "sleeping"),
        ("jobs", "state", SQL),
        ("jobs", "sweep", "first"),
        ("jobs", "limit", "0"),
        ("jobs", "limit", "1001"),
        ("jobs", "limit", "all"),
        ("jobs", "colour", "red"),
        ("agents", "cursor", "\x00"),
        ("measurements", "model", "x" * 201),
        ("measurements", "world_size", "-1"),
        ("jobs/1/series", "attempt", "0"),
        ("jobs/1/series", "rank", "-1"),
        ("jobs/1/series", "rank", "99999"),
        ("recommendation", "global_batch_size", "-64"),
        ("recommendation", "global_batch_size", "9" * 30),
        ("recommendation", "one_way_delay_ms", "nan"),
        ("recommendation", "one_way_delay_ms", "1_0"),
        ("recommendation", "one_way_delay_ms", "\u0663"),
        ("recommendation", "jitter_ms", "-1"),
        ("recommendation", "one_way_delay_ms", "-1"),
        ("recommendation", "one_way_delay_ms", "inf"),
        ("recommendation", "alpha", "-0.5"),
        ("recommendation", "beta", "1e400"),
        ("recommendation", "budget_usd", "many"),
        ("recommendation", "world_sizes", "1,,2"),
        ("recommendation", "pass", "sideways"),
        ("recommendation", "machines", "0"),
        ("recommendation", "target_accuracy", "1.5"),
        ("recommendation", "target_accuracy", "0"),
        ("recommendation", "network", ","),
    ],
)
def test_a_parameter_that_does_not_fit_is_named(
    client: FlaskClient, path: str, field: str, value: str
) -> None:
    query = {"global_batch_size": "64"} if path == "recommendation" else {}
    answer = client.get(f"/api/v1/{path}", query_string={**query, field: value})
    assert _problem(answer, 400)["field"] == field


def test_a_parameter_given_twice_is_refused(client: FlaskClient) -> None:
    assert _problem(client.get("/api/v1/jobs?limit=1&limit=2"), 400)["field"] == "limit"


def test_a_recommendation_needs_a_batch_size(client: FlaskClient) -> None:
    answer = client.get("/api/v1/recommendation")
    assert _problem(answer, 400)["field"] == "global_batch_size"


def test_sql_in_every_text_parameter_finds_nothing_and_breaks_nothing(
    client: FlaskClient, engine: sa.Engine
) -> None:
    for name in ("origin", "model", "dataset", "strategy", "fingerprint", "status"):
        answer = client.get("/api/v1/measurements", query_string={name: SQL})
        assert answer.json == {"items": [], "next": None}
    assert client.get("/api/v1/agents", query_string={"cursor": SQL}).status_code == 200
    assert set(sa.inspect(engine).get_table_names()) >= set(Table.metadata.tables)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/v1/nothing", 404),
        ("GET", "/api/v2/jobs", 404),
        ("GET", "/api/v1/jobs/1/2/3", 404),
        ("POST", "/api/v1/nothing", 404),
        ("DELETE", "/api/v1/jobs", 405),
        ("PUT", "/api/v1/sweeps/1", 405),
        ("PATCH", "/api/v1/jobs/1", 405),
        ("GET", "/api/v1/jobs/1/cancel", 405),
        ("POST", "/health/live", 405),
        ("POST", "/metrics", 405),
    ],
)
def test_unknown_addresses_and_methods_are_refused_clearly(
    client: FlaskClient, method: str, path: str, status: int
) -> None:
    answer = client.open(path, method=method)
    _problem(answer, status)
    if status == 405:
        assert answer.headers["Allow"]


def test_unknown_pages_are_pages(client: FlaskClient) -> None:
    page = client.get("/nothing<script>")
    assert page.status_code == 404
    assert page.content_type.startswith("text/html")
    assert "<script>" not in page.get_data(as_text=True)


@pytest.mark.parametrize("path", ["../../etc/passwd", "..%2f..%2fapp.py", "%2e%2e/app.py"])
def test_static_files_stay_in_their_folder(client: FlaskClient, path: str) -> None:
    assert client.get(f"/static/{path}").status_code == 404


def test_a_field_that_an_action_does_not_know_is_refused(client: FlaskClient) -> None:
    answer = client.post("/api/v1/jobs/1/cancel", json={"force": True})
    assert _problem(answer, 422)["field"] == "force"
