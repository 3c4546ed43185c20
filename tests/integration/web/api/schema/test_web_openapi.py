"""The API's document: of every route, valid, and true of what is answered.

Every other test of the web server helps: its client holds each answer to the document.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import sqlalchemy as sa
from flask.testing import FlaskClient

from farm.configuration.spec import EMULATOR_NAMES
from tests.web.described_client import document_of
from tests.web.web_client import SWEEP, TOKEN, bearer, client_of, seed

DOCUMENT = "/api/v1/openapi.json"


@pytest.fixture
def client(engine: sa.Engine) -> FlaskClient:
    return client_of(engine)


@pytest.fixture
def document(client: FlaskClient) -> dict[str, Any]:
    found = client.get(DOCUMENT).json
    assert isinstance(found, dict)
    return found


def _operations(document: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (path, method): operation
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    }


def test_every_route_of_the_api_is_in_the_document_and_no_other(
    client: FlaskClient, document: dict[str, Any]
) -> None:
    routes = {
        (re.sub(r"<([^>]+)>", r"{\1}", rule.rule), method.lower())
        for rule in client.application.url_map.iter_rules()
        if rule.rule.startswith("/api/") and not rule.rule.startswith("/api/v1/docs")
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
    }
    assert set(_operations(document)) == routes


def test_every_operation_says_what_it_is_for_and_how_it_refuses(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1")
    operations = _operations(document)
    assert len({operation["operationId"] for operation in operations.values()}) == len(operations)
    problem = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for where, operation in operations.items():
        assert operation["summary"].endswith("."), where
        assert operation["tags"], where
        refusals = {s: r for s, r in operation["responses"].items() if s[0] in "45d"}
        assert {"400", "default"} <= set(refusals), where
        assert all(r["content"] == problem and r["description"] for r in refusals.values()), where
        for parameter in operation["parameters"]:
            assert parameter["description"], (where, parameter["name"])
            assert parameter["schema"], (where, parameter["name"])


def test_whatever_the_document_refers_to_is_in_it(document: dict[str, Any]) -> None:
    text = json.dumps(document)
    referred = set(re.findall(r'"\$ref": "#/components/schemas/([^"]+)"', text))
    assert referred == set(document["components"]["schemas"])
    assert '"title": "Id"' not in text


def test_every_operation_names_the_scope_it_needs_and_that_an_open_farm_needs_none(
    engine: sa.Engine,
) -> None:
    document = client_of(engine, FARM_API_TOKEN=TOKEN).get(DOCUMENT, headers=bearer(TOKEN)).json
    assert document is not None
    assert TOKEN not in json.dumps(document)
    assert document["components"]["securitySchemes"]["session"]["name"] == "benchfarm_8080"
    security = {where: operation["security"] for where, operation in _operations(document).items()}
    browser: dict[str, list[str]] = {"session": [], "csrf": []}
    for where, scope in (("/sweeps", "submit"), ("/agents/{agent_id}/drain", "admin")):
        assert security[(f"/api/v1{where}", "post")] == [{"token": [scope]}, browser, {}]
    assert security[("/api/v1/sweeps", "get")] == [{"token": ["read"]}, {"session": []}, {}]


def test_the_described_sweep_has_the_fields_that_are_read(
    client: FlaskClient, document: dict[str, Any]
) -> None:
    schemas = document["components"]["schemas"]
    for name, where, sweep in (
        ("SweepFile", "nonsense", {**SWEEP, "nonsense": 1}),
        ("SweepCase", "case[0].nonsense", {"name": "x", "case": [{"nonsense": 1}]}),
    ):
        refused = json.loads(client.post("/api/v1/sweeps", json=sweep).data)
        assert refused["field"] == where
        listed = refused["detail"].split("one of the fields ", 1)[1]
        fields = re.split(r", got | \(did", listed, maxsplit=1)[0].split(", ")
        assert set(schemas[name]["properties"]) == set(fields)
        assert schemas[name]["additionalProperties"] is False
    assert tuple(schemas["SweepCase"]["properties"]["emulator"]["enum"]) == EMULATOR_NAMES


def test_a_parameter_is_refused_where_none_is_described(
    client: FlaskClient, engine: sa.Engine
) -> None:
    seeded = seed(engine)
    for path in (DOCUMENT, f"/api/v1/jobs/{seeded.failed}", "/api/v1/sweeps/1", "/api/v1/origins"):
        refused = client.get(f"{path}?colour=red")
        assert refused.status_code == 400, path
        assert json.loads(refused.data)["field"] == "colour"


def test_the_client_notices_what_is_not_described(client: FlaskClient) -> None:
    described = document_of(client.application)["paths"]["/api/v1/jobs"]["get"]["responses"]
    kept = described.pop("400")
    try:
        with pytest.raises(AssertionError, match="400 is not described"):
            client.get("/api/v1/jobs?limit=0")
    finally:
        described["400"] = kept


def test_the_page_of_the_document_needs_nothing_from_elsewhere(client: FlaskClient) -> None:
    page = client.get("/api/v1/docs")
    text = page.get_data(as_text=True)
    policy = page.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'self'; ")
    assert "; img-src 'self' data:" in policy
    assert "unsafe" not in policy
    assert "http://" not in text
    assert "https://" not in text
    assert re.findall(r"<script(?![^>]* src=)", text) == []
    assert " style=" not in text
    for address in re.findall(r'(?:src|href)="([^"]+\.(?:js|css))"', text):
        file = client.get(address)
        assert file.status_code == 200, address
        file.close()
        if "/docs/" in address:
            assert "immutable" in file.headers["Cache-Control"]
    assert client.get("/api/v1/docs/0.0/swagger-ui.css").status_code == 404
