"""Server-sent events: who watches is told, and nobody too many holds a connection."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from farm.store.engine import writing
from farm.store.sweeps.jobs import request_cancel_job
from tests import factories
from tests.web.web_client import TOKEN, Seeded, bearer, client_of, make_api_token, seed
from web.live.changes import MAX_OF_ONE_VIEWER, MAX_WATCHERS


@pytest.fixture(autouse=True)
def _nobody_looks_at_a_store_that_is_gone(engine: sa.Engine) -> Iterator[None]:
    yield
    for thread in threading.enumerate():
        if thread.name == "changes":
            thread.join(timeout=60)


@pytest.fixture
def client(engine: sa.Engine) -> FlaskClient:
    return client_of(engine)


@pytest.fixture
def seeded(engine: sa.Engine) -> Seeded:
    return seed(engine)


def _blocks(answer: TestResponse) -> Iterator[str]:
    for block in answer.response:
        yield block.decode() if isinstance(block, bytes) else block


def _event(blocks: Iterator[str]) -> dict[str, object]:
    """Return the next event's data; a heartbeat is none."""
    for block in blocks:
        if block.startswith("event: changed\ndata: "):
            assert block.endswith("\n\n")
            data: dict[str, object] = json.loads(block.split("data: ", 1)[1])
            return data
    raise AssertionError("the stream ended")


def test_a_change_of_a_sweep_is_told(
    client: FlaskClient, engine: sa.Engine, seeded: Seeded
) -> None:
    answer = client.get(f"/api/v1/events?sweep={seeded.sweep_id}")
    assert answer.content_type == "text/event-stream"
    assert answer.headers["Cache-Control"] == "private, no-cache"
    blocks = _blocks(answer)
    assert next(blocks).startswith("retry: ")
    subject = {"kind": "sweep", "id": seeded.sweep_id}
    assert _event(blocks) == subject  # whatever happened since the page was read
    with writing(engine) as session:
        request_cancel_job(session, seeded.waiting, now=factories.NOW)
    assert _event(blocks) == subject
    answer.close()


def test_a_job_that_runs_is_told_of_again_and_again(client: FlaskClient, seeded: Seeded) -> None:
    answer = client.get(f"/api/v1/events?job={seeded.running}")
    blocks = _blocks(answer)
    for _ in range(2):
        assert _event(blocks) == {"kind": "job", "id": seeded.running}
    answer.close()


def test_more_watchers_than_may_be_are_told_to_look_by_themselves(
    client: FlaskClient, seeded: Seeded
) -> None:
    path = f"/api/v1/events?sweep={seeded.sweep_id}"
    streams = [client.get(path) for _ in range(MAX_WATCHERS)]
    assert {stream.status_code for stream in streams} == {200}
    refused = client.get(path)
    assert refused.status_code == 503
    assert refused.content_type == "application/problem+json"
    assert int(refused.headers["Retry-After"]) > 0
    # Who leaves without having read anything makes room too.
    for stream in streams:
        stream.close()
    again = client.get(path)
    assert again.status_code == 200
    again.close()


def test_a_question_for_the_headers_alone_holds_no_place(
    client: FlaskClient, seeded: Seeded
) -> None:
    path = f"/api/v1/events?sweep={seeded.sweep_id}"
    for _ in range(MAX_WATCHERS + 1):
        answer = client.head(path)
        assert answer.status_code == 200
        answer.close()


def test_no_token_holds_all_the_connections(engine: sa.Engine, seeded: Seeded) -> None:
    client = client_of(engine, FARM_API_TOKEN=TOKEN)
    path = f"/api/v1/events?sweep={seeded.sweep_id}"
    streams = [client.get(path, headers=bearer(TOKEN)) for _ in range(MAX_OF_ONE_VIEWER)]
    assert {stream.status_code for stream in streams} == {200}
    refused = client.get(path, headers=bearer(TOKEN))
    assert refused.status_code == 503
    assert int(refused.headers["Retry-After"]) > 0
    streams.append(client.get(path, headers=bearer(make_api_token(engine))))
    assert streams[-1].status_code == 200
    for stream in streams:
        stream.close()


@pytest.mark.parametrize(
    ("query", "status", "field"),
    [
        ("", 400, "sweep"),
        ("sweep=1&job=1", 400, "sweep"),
        ("sweep=x", 400, "sweep"),
        ("job=0", 400, "job"),
        ("colour=red", 400, "colour"),
        ("sweep=99", 404, None),
        ("job=99", 404, None),
    ],
)
def test_one_thing_that_is_there_is_watched(
    client: FlaskClient, seeded: Seeded, query: str, status: int, field: str | None
) -> None:
    answer = client.get(f"/api/v1/events?{query}")
    assert answer.status_code == status
    assert json.loads(answer.data).get("field") == field
