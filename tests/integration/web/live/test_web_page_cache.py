"""Viewers who follow a page share what was made of it, and nothing that is of one of them."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from flask import template_rendered
from flask.testing import FlaskClient
from jinja2 import Template
from sqlalchemy.orm import Session

from farm.keys.api_tokens import Scope
from farm.store.engine import writing
from farm.store.sweeps.jobs import request_cancel_job
from tests import factories
from tests.web.web_client import Seeded, bearer, client_of, csrf_of, make_api_token, seed, sign_in
from web.live.page_cache import install
from web.request_body import LIVE_HEADER

LIVE = {LIVE_HEADER: "1"}


@pytest.fixture
def client(engine: sa.Engine) -> FlaskClient:
    return client_of(engine)


@pytest.fixture
def seeded(engine: sa.Engine) -> Seeded:
    return seed(engine)


@pytest.fixture
def pages(seeded: Seeded) -> list[str]:
    return ["/", f"/sweeps/{seeded.sweep_id}", f"/jobs/{seeded.running}"]


def _look(client: FlaskClient, path: str) -> str:
    answer = client.get(path, headers=LIVE)
    assert answer.status_code == 200
    return answer.get_data(as_text=True)


def test_a_look_is_the_page_itself(client: FlaskClient, pages: list[str]) -> None:
    for path in pages:
        page = client.get(path)
        look = client.get(path, headers=LIVE)
        assert look.status_code == 200
        assert look.content_type == page.content_type
        assert look.headers["Content-Security-Policy"] == page.headers["Content-Security-Policy"]
        assert csrf_of(client, path) in look.get_data(as_text=True)


def test_one_look_serves_all_who_ask_within_a_second(
    client: FlaskClient, seeded: Seeded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("web.live.page_cache.LIVE_LIFE_S", 60.0)
    install(client.application)
    other = client.application.test_client()
    made: list[str | None] = []

    def note(sender: object, template: Template, **context: object) -> None:
        made.append(template.name)

    path = f"/sweeps/{seeded.sweep_id}"
    with template_rendered.connected_to(note, client.application):
        for one in (client, other, client):
            _look(one, path)
        assert made.count("sweep.html") == 1
        _look(client, f"{path}?page=1")
        assert made.count("sweep.html") == 2, "another address is another page"


def test_viewers_share_looks_and_have_forms_of_their_own(
    engine: sa.Engine, client: FlaskClient, seeded: Seeded
) -> None:
    path = f"/jobs/{seeded.waiting}"
    other = client.application.test_client()
    tokens = {csrf_of(one, path) for one in (client, other)}
    assert len(tokens) == 2
    looks = [_look(one, path) for one in (client, other)]
    for one, look in zip((client, other), looks, strict=True):
        token = csrf_of(one, path)
        assert token in look
        assert not (tokens - {token}) & set(look.split('"')), "another viewer's token"
    answer = other.post(f"{path}/cancel", data={"csrf_token": csrf_of(other, path)})
    assert answer.status_code == 303


def test_viewers_share_how_fast_jobs_go_also_before_one_has_finished(
    engine: sa.Engine, client: FlaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("web.overview.progress.LEAST_PACE_GOOD_S", 60.0)
    with writing(engine) as session:
        factories.add_job(session)
    read: list[object] = []

    def note_paces(session: Session, sweep_ids: object) -> dict[int, object]:
        read.append(sweep_ids)
        return {}

    def note_latest(session: Session) -> tuple[object, ...]:
        read.append("latest")
        return ()

    monkeypatch.setattr("web.overview.progress.paces", note_paces)
    monkeypatch.setattr("web.overview.progress.latest_paces", note_latest)
    client.get("/")
    count = len(read)
    assert count > 0
    client.get("/")
    assert len(read) == count


def test_a_page_that_is_loaded_is_always_made_anew(
    engine: sa.Engine, client: FlaskClient, seeded: Seeded
) -> None:
    path = f"/jobs/{seeded.waiting}"
    button = f'action="{path}/retry"'
    assert button not in _look(client, path)
    with writing(engine) as session:
        request_cancel_job(session, seeded.waiting, now=factories.NOW)
    assert button in client.get(path).get_data(as_text=True)


def test_a_message_is_told_once_and_to_nobody_else(client: FlaskClient, seeded: Seeded) -> None:
    path = f"/jobs/{seeded.waiting}"
    other = client.application.test_client()
    client.post(f"{path}/cancel", data={"csrf_token": csrf_of(client, path)})
    assert "Cancelled." in _look(client, path)
    for one in (client, other):
        assert "Cancelled." not in _look(one, path)


def test_who_may_do_less_sees_another_page(engine: sa.Engine, seeded: Seeded) -> None:
    admin_token = make_api_token(engine, "a", scope=Scope.ADMIN)
    reader_token = make_api_token(engine, "r", scope=Scope.READ)
    admin = client_of(engine)
    reader, stranger = (admin.application.test_client() for _ in range(2))
    sign_in(admin, admin_token)
    sign_in(reader, reader_token)
    path = f"/jobs/{seeded.waiting}"
    button = f'action="{path}/cancel"'
    assert button in _look(admin, path)
    assert button not in _look(reader, path)
    assert stranger.get(path, headers=LIVE).status_code != 200


def test_what_is_not_there_is_not_found(client: FlaskClient, seeded: Seeded) -> None:
    for _ in range(2):
        assert client.get("/jobs/999", headers=LIVE).status_code == 404


def test_looks_ask_once_whether_the_farm_is_open(
    engine: sa.Engine, client: FlaskClient, seeded: Seeded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("web.access.authentication.LIVE_LIFE_S", 60.0)
    path = f"/jobs/{seeded.waiting}"
    _look(client, path)
    token = make_api_token(engine, "first")
    assert client.get(path, headers=LIVE).status_code == 200
    assert client.get(path).status_code == 303, "whoever loads a page is asked anew"
    changed = client.post("/api/v1/jobs/4/cancel", json={}, headers=LIVE)
    assert changed.status_code == 401, "what changes something is asked anew"
    assert client.get(path, headers={**LIVE, **bearer("wrong")}).status_code == 401
    assert client.get(path, headers={**LIVE, **bearer(token)}).status_code == 200
