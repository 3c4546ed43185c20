"""POST requests that are sent again with the same `Idempotency-Key`."""

from __future__ import annotations

import threading
from typing import cast

import pytest
import sqlalchemy as sa
from flask.testing import FlaskClient

from farm.keys.api_tokens import Scope
from farm.store.access.idempotency_keys import KEPT
from farm.store.engine import reading, writing
from farm.store.tables import IdempotentAnswer, SweepRow
from tests.factories import seconds
from tests.web.web_client import SWEEP, bearer, client_of, make_api_token, seed

KEYED = {"Idempotency-Key": "key-1"}


@pytest.fixture
def client(engine: sa.Engine) -> FlaskClient:
    seed(engine)
    return client_of(engine)


def _sweep_count(engine: sa.Engine) -> int:
    with reading(engine) as session:
        return session.scalar(sa.select(sa.func.count()).select_from(SweepRow)) or 0


def _answer_count(engine: sa.Engine) -> int:
    with reading(engine) as session:
        return session.scalar(sa.select(sa.func.count()).select_from(IdempotentAnswer)) or 0


def test_a_sweep_that_is_sent_again_is_enqueued_once(
    client: FlaskClient, engine: sa.Engine
) -> None:
    before = _sweep_count(engine)
    first = client.post("/api/v1/sweeps", json=SWEEP, headers=KEYED)
    again = client.post("/api/v1/sweeps", json=SWEEP, headers=KEYED)
    assert (first.status_code, again.status_code) == (201, 201)
    assert (again.json, again.headers["Location"]) == (first.json, first.headers["Location"])
    assert again.headers["Idempotency-Replayed"] == "true"
    assert _sweep_count(engine) == before + 1
    for headers in ({"Idempotency-Key": "key-2"}, {}):
        assert client.post("/api/v1/sweeps", json=SWEEP, headers=headers).status_code == 201
    assert _sweep_count(engine) == before + 3


def test_a_sweep_that_leaves_out_much_has_the_same_answer_again(
    client: FlaskClient, engine: sa.Engine
) -> None:
    before = _sweep_count(engine)
    [case] = cast(list[dict[str, object]], SWEEP["case"])
    sizes = list(range(64, 84))
    wide = {**case, "world_size": list(range(1, 33)), "global_batch_size": sizes}
    sweep = {**SWEEP, "case": [wide], "skip_impossible": True}
    first = client.post("/api/v1/sweeps", json=sweep, headers=KEYED)
    assert first.json is not None
    assert len(first.json["skipped"]) == 31 * len(sizes)
    again = client.post("/api/v1/sweeps", json=sweep, headers=KEYED)
    assert (again.status_code, again.json) == (201, first.json)
    assert _sweep_count(engine) == before + 1


def test_after_a_restart_of_the_web_server_too(client: FlaskClient, engine: sa.Engine) -> None:
    before = _sweep_count(engine)
    first = client.post("/api/v1/sweeps", json=SWEEP, headers=KEYED)
    restarted = client_of(engine)
    again = restarted.post("/api/v1/sweeps", json=SWEEP, headers=KEYED)
    assert (again.status_code, again.json) == (201, first.json)
    assert again.headers["Location"] == first.headers["Location"]
    assert again.headers["Idempotency-Replayed"] == "true"
    other = restarted.post("/api/v1/sweeps", json={**SWEEP, "name": "another"}, headers=KEYED)
    assert other.status_code == 422
    assert _sweep_count(engine) == before + 1


def test_what_was_carried_out_before_the_server_could_answer_is_not_carried_out_again(
    client: FlaskClient, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = _sweep_count(engine)

    def killed(*_: object) -> None:
        raise SystemExit

    monkeypatch.setattr("web.api.sweeps.jsonify", killed)
    with pytest.raises(SystemExit):
        client.post("/api/v1/sweeps", json=SWEEP, headers=KEYED)
    monkeypatch.undo()
    restarted = client_of(engine)
    early = restarted.post("/api/v1/sweeps", json=SWEEP, headers=KEYED)
    assert (early.status_code, early.headers["Retry-After"]) == (409, "1")
    with writing(engine) as session:
        session.get_one(
            IdempotentAnswer, session.scalar(sa.select(IdempotentAnswer.name))
        ).begun_at -= seconds(61)
    late = restarted.post("/api/v1/sweeps", json=SWEEP, headers=KEYED)
    assert (late.status_code, "Retry-After" in late.headers) == (409, False)
    assert "its answer was not kept" in str(late.json)
    assert _sweep_count(engine) == before + 1


def test_a_key_counts_for_a_day(client: FlaskClient, engine: sa.Engine) -> None:
    before = _sweep_count(engine)
    client.post("/api/v1/sweeps", json=SWEEP, headers=KEYED)
    with writing(engine) as session:
        for answer in session.scalars(sa.select(IdempotentAnswer)):
            answer.begun_at -= KEPT
    again = client.post("/api/v1/sweeps", json=SWEEP, headers=KEYED)
    assert (again.status_code, "Idempotency-Replayed" in again.headers) == (201, False)
    assert _sweep_count(engine) == before + 2
    assert _answer_count(engine) == 1


def test_the_oldest_answers_are_forgotten_when_they_are_too_many(
    client: FlaskClient, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("farm.store.access.idempotency_keys.MOST_KEPT", 2)
    answers = [
        client.post("/api/v1/sweeps", json=SWEEP, headers={"Idempotency-Key": key})
        for key in ("1", "2", "3", "3", "2")
    ]
    assert ["Idempotency-Replayed" in a.headers for a in answers] == [False] * 3 + [True] * 2
    assert _answer_count(engine) == 2


def test_a_request_that_is_refused_changes_nothing_and_has_the_same_answer_again(
    client: FlaskClient, engine: sa.Engine
) -> None:
    body = {**SWEEP, "name": ""}
    refused = [client.post("/api/v1/sweeps", json=body, headers=KEYED) for _ in range(2)]
    assert [a.status_code for a in refused] == [422, 422]
    assert refused[1].headers["Idempotency-Replayed"] == "true"


@pytest.mark.parametrize(
    "path", ["/api/v1/agents/a1/drain", "/api/v1/sweeps/1/pause", "/api/v1/sweeps/preview"]
)
def test_every_post_takes_a_key(client: FlaskClient, path: str) -> None:
    body = SWEEP if path.endswith("preview") else {}
    answers = [client.post(path, json=body, headers=KEYED) for _ in range(2)]
    assert answers[0].status_code < 300
    assert answers[1].headers["Idempotency-Replayed"] == "true"
    assert answers[1].get_data() == answers[0].get_data()


def test_another_request_with_the_same_key_is_refused(client: FlaskClient) -> None:
    client.post("/api/v1/sweeps", json=SWEEP, headers=KEYED)
    other = client.post("/api/v1/sweeps", json={**SWEEP, "name": "another"}, headers=KEYED)
    assert other.status_code == 422
    assert "another request was sent with 'key-1'" in str(other.json)


@pytest.mark.parametrize("key", ["", "x" * 201, "a\tb"])
def test_a_key_is_short_and_printable(client: FlaskClient, key: str) -> None:
    refused = client.post("/api/v1/sweeps", json=SWEEP, headers={"Idempotency-Key": key})
    assert refused.status_code == 400


def test_a_key_belongs_to_its_caller(client: FlaskClient, engine: sa.Engine) -> None:
    before = _sweep_count(engine)
    for name in ("one", "two"):
        token = make_api_token(engine, name, scope=Scope.SUBMIT)
        headers = {**KEYED, **bearer(token)}
        assert client.post("/api/v1/sweeps", json=SWEEP, headers=headers).status_code == 201
    assert _sweep_count(engine) == before + 2


def test_of_requests_at_the_same_time_one_is_carried_out(
    client: FlaskClient, engine: sa.Engine
) -> None:
    before = _sweep_count(engine)
    statuses: list[int] = []

    def post() -> None:
        own = client.application.test_client()
        statuses.append(own.post("/api/v1/sweeps", json=SWEEP, headers=KEYED).status_code)

    threads = [threading.Thread(target=post) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(statuses) <= {201, 409}
    assert 201 in statuses
    assert _sweep_count(engine) == before + 1


@pytest.mark.parametrize("database_kind", ["postgresql"])
def test_an_error_names_no_host_and_no_account(engine: sa.Engine, database_kind: str) -> None:
    seed(engine)
    url = engine.url.set(host="127.0.0.1", port=1, username="its-account", database="its-database")
    away = sa.create_engine(url)
    client = client_of(away)
    for path in ("/api/v1/jobs", "/", "/api/v1/agents"):
        answer = client.get(path)
        text = answer.get_data(as_text=True)
        assert answer.status_code == 503
        assert "127.0.0.1" not in text
        assert "its-account" not in text
        assert "its-database" not in text
    away.dispose()
