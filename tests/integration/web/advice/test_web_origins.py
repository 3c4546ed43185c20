"""Origins, what of them is hard to believe, and what to measure next."""

from __future__ import annotations

import json
import threading
import tomllib
from typing import Any

import pytest
import sqlalchemy as sa
from flask.testing import FlaskClient
from markupsafe import escape

from farm.store.engine import writing
from farm.submission import plan
from tests import factories
from tests.web.web_client import client_of, fitted, seed
from web.backend import backend

SQL = "'; DROP TABLE jobs; --"


@pytest.fixture
def client(engine: sa.Engine) -> FlaskClient:
    return client_of(engine)


def _add_study(engine: sa.Engine, *, origin: str = "study") -> None:
    """Step times that grow with the batch, but for one that is a hundred times too long."""
    with writing(engine) as session:
        for number, batch_size in enumerate((16, 32, 64, 128, 256, 512, 1024, 2048)):
            for world_size in (1, 2, 4):
                factories.add_measurement(
                    session,
                    f"{origin} {number} {world_size}",
                    origin=origin,
                    model="mlp",
                    dataset="digits",
                    strategy="single" if world_size == 1 else "mwms_ring",
                    world_size=world_size,
                    global_batch_size=batch_size,
                    step_time_s=(0.002 + 0.0002 * batch_size / world_size)
                    * (100 if (batch_size, world_size) == (128, 2) else 1),
                )


def test_origins_are_listed_with_their_sources(client: FlaskClient, engine: sa.Engine) -> None:
    assert client.get("/api/v1/origins").json == {"items": [], "next": None}
    seed(engine)
    _add_study(engine)
    found = client.get("/api/v1/origins").json
    assert found is not None
    assert [(o["origin"], o["measurement_count"]) for o in found["items"]] == [
        ("farm", 2),
        ("study", 24),
    ]
    assert found["items"][0]["source"] == "measured by this farm"


def test_what_is_hard_to_believe_is_named_once_it_is_judged(
    client: FlaskClient, engine: sa.Engine
) -> None:
    _add_study(engine)
    # Fits the model, which the list of doubts itself never waits for.
    fitted(client, "/api/v1/recommendation?origin=study&global_batch_size=100")
    found = client.get("/api/v1/origins/study/suspicious").json
    assert found is not None
    assert found["lacking"] == []
    measured = client.get("/api/v1/measurements?origin=study&world_size=2").json
    assert measured is not None
    wrong = next(m["id"] for m in measured["items"] if m["global_batch_size"] == 128)
    assert wrong in [doubt["measurement_id"] for doubt in found["items"]]


def test_what_is_not_judged_yet_is_said_to_be_lacking(
    client: FlaskClient, engine: sa.Engine
) -> None:
    _add_study(engine)
    first = client.get("/api/v1/origins/study/suspicious")
    assert first.json is not None
    assert first.json["items"] == []
    assert "ask again" in first.json["lacking"][0]
    assert "ETag" not in first.headers


@pytest.mark.parametrize("origin", ["nowhere", "x" * 500, SQL, "%00", "%0a", "<b>"])
def test_an_unknown_origin_is_not_found(client: FlaskClient, origin: str) -> None:
    answer = client.get(f"/api/v1/origins/{origin}/suspicious")
    assert answer.status_code == 404
    assert answer.content_type == "application/problem+json"


def _plan(client: FlaskClient, query: str) -> dict[str, Any]:
    """Ask for a plan until it is made, as programs are told to."""
    while (answer := client.get(f"/api/v1/plan?{query}")).status_code == 503:
        assert int(answer.headers["Retry-After"]) > 0
    found: dict[str, Any] = json.loads(answer.data)
    assert answer.status_code == 200, found
    return found


def test_a_plan_is_a_sweep_that_can_be_submitted(client: FlaskClient, engine: sa.Engine) -> None:
    _add_study(engine, origin="farm")
    found = _plan(client, "next=2&one_way_delays_ms=0,20&steps=7")
    assert 1 <= len(found["proposals"]) <= 2
    assert found["regret_after_ratio"] <= found["regret_before_ratio"]
    planned = plan(tomllib.loads(found["sweep"]))
    assert len(planned.expansion.jobs) == len(found["proposals"])
    assert {job.steps for job in planned.expansion.jobs} == {7}


def test_a_plan_that_takes_long_is_asked_for_again(
    client: FlaskClient, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    _add_study(engine, origin="farm")
    gate = threading.Event()
    with client.application.app_context():
        backend().background.ask("another plan", gate.wait)
    with monkeypatch.context() as impatient:
        impatient.setattr("web.api.plans.PATIENCE_S", 0.0)
        refused = client.get("/api/v1/plan?next=1&one_way_delays_ms=20")
    assert refused.status_code == 503
    assert int(refused.headers["Retry-After"]) > 0
    assert "ask again" in json.loads(refused.data)["detail"]
    gate.set()
    assert len(_plan(client, "next=1&one_way_delays_ms=20")["proposals"]) == 1


def test_the_page_and_the_api_propose_the_same_plan(client: FlaskClient, engine: sa.Engine) -> None:
    _add_study(engine, origin="farm")
    proposed = _plan(client, "model=mlp&dataset=digits&global_batch_sizes=64&one_way_delays_ms=20")
    page = client.get("/advice/plan?global_batch_size=64&one_way_delay_ms=20").get_data(
        as_text=True
    )
    assert escape(proposed["sweep"]) in page


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("next", "0"),
        ("next", "101"),
        ("one_way_delays_ms", "-1"),
        ("one_way_delays_ms", "nan"),
        ("one_way_delays_ms", "0,,20"),
        ("world_sizes", "0"),
        ("world_sizes", "1,x"),
        ("fingerprint", "no such"),
        ("alpha", "-1"),
        ("alpha", "0"),
        ("budget_usd", "inf"),
        ("prices", "own"),
        ("prices", "own=-1"),
        ("steps", "0"),
        ("seed", "-1"),
        ("origin", "\x00"),
        ("colour", "red"),
    ],
)
def test_a_plan_names_the_parameter_that_does_not_fit(
    client: FlaskClient, engine: sa.Engine, field: str, value: str
) -> None:
    _add_study(engine, origin="farm")
    answer = client.get("/api/v1/plan", query_string={field: value})
    assert answer.status_code == 400
    assert json.loads(answer.data)["field"] == field


def test_a_plan_of_a_grid_without_end_is_refused(client: FlaskClient) -> None:
    axis = ",".join(str(n) for n in range(10, 70))
    query = {"world_sizes": axis, "global_batch_sizes": axis, "one_way_delays_ms": axis}
    answer = client.get("/api/v1/plan", query_string=query)
    assert answer.status_code == 400
    assert "at most 5000" in json.loads(answer.data)["detail"]


def test_a_plan_needs_an_origin_that_is_there(client: FlaskClient) -> None:
    assert client.get("/api/v1/plan?origin=nowhere").status_code == 404
    # Of the farm itself nothing is measured: the grid has to be named.
    answer = client.get("/api/v1/plan")
    assert answer.status_code == 400
    assert json.loads(answer.data)["field"] == "model"
