"""What the page for a new sweep refuses, whom it refuses, and how it says so."""

from __future__ import annotations

import html
import io
import re

import pytest
import sqlalchemy as sa
from flask.testing import FlaskClient
from werkzeug.datastructures import FileStorage

from farm.keys.api_tokens import Scope
from tests.web.new_sweep_pages import (
    EVIL,
    TOML,
    file_of,
    look,
    look_at_file,
    row_count,
    send_form,
    text_of,
    value_of,
)
from tests.web.web_client import TOKEN, client_of, csrf_of, make_api_token, seed, sign_in

SQL = "'; DROP TABLE sweeps; --"


@pytest.fixture
def client(engine: sa.Engine) -> FlaskClient:
    return client_of(engine)


def test_a_field_that_does_not_fit_is_named_beside_it(
    client: FlaskClient, engine: sa.Engine
) -> None:
    wrong: list[tuple[str, str | list[str]]] = [
        ("name", ""),
        ("name", "a\nb"),
        ("world_size", "two"),
        ("world_size", "0"),
        ("world_size", SQL),
        ("global_batch_size", ""),
        ("global_batch_size", EVIL),
        ("global_batch_size", "9" * 30),
        ("one_way_delay_ms", "-1"),
        ("bandwidth_mbit_per_s", "x" * 3000),
        ("repetitions", "0"),
        ("steps", "1.5"),
        ("priority", "1e9"),
        ("labels", "zone"),
        ("seed", "٣"),
        ("emulator", EVIL),
        ("pass", SQL),
        ("model", []),
    ]
    for field, value in wrong:
        answer = look(client, **{field: value})
        assert answer.status_code == 422, field
        page = answer.get_data(as_text=True)
        assert EVIL not in page
        [message] = re.findall(rf'id="{field}-error" role="alert">([^<]*)</p>', page)
        assert html.unescape(message).startswith(f"{field}: expected ")
        assert "\n" not in message
        assert len(message) < 1000
        assert re.search(rf'aria-describedby="[^"]*{field}-error"', page)
        # The rest of the form stays as it was sent.
        assert field == "name" or value_of(page, "name") == "by hand"
    assert row_count(engine) == 0


def test_steps_beside_epochs_are_refused(client: FlaskClient) -> None:
    answer = look(client, steps="5", epochs="5")
    assert answer.status_code == 422
    assert "epochs: expected either steps or epochs, not both" in text_of(answer)


@pytest.mark.parametrize("repetitions", ["1000000000", "999999"])
def test_a_billion_jobs_are_refused_with_the_limit(
    client: FlaskClient, engine: sa.Engine, repetitions: str
) -> None:
    answer = look(client, repetitions=repetitions)
    assert answer.status_code == 422
    assert "at most 100000 jobs in one sweep" in text_of(answer)
    assert value_of(answer.get_data(as_text=True), "repetitions") == repetitions
    file = look_at_file(client, f"repetitions = {repetitions}\n{TOML}")
    assert file.status_code == 422
    assert "at most 100000 jobs in one sweep" in text_of(file)
    assert row_count(engine) == 0


def test_where_nothing_can_run_the_reason_is_told(client: FlaskClient) -> None:
    answer = look(client, strategy=["single"], world_size="2")
    assert answer.status_code == 422
    assert "a cell that can run; all 2 cannot" in text_of(answer)


@pytest.mark.parametrize("path", ["/sweeps", "/sweeps/preview"])
def test_text_that_is_no_sweep_is_answered_in_one_line(client: FlaskClient, path: str) -> None:
    data = {"csrf_token": csrf_of(client, "/sweeps/new"), "key": "k"}
    for text, expected in (
        ("", "case"),
        ("name = ", "TOML"),
        ("x = 1", "x"),
        ("\x00", "TOML"),
        ("a." * 2000, "dots"),
    ):
        answer = client.post(path, data={**data, "sweep": text})
        assert answer.status_code in (400, 422)
        notice = answer.get_data(as_text=True).split('role="alert">', 1)[1].split("</p>", 1)[0]
        assert expected in notice
        assert "\n" not in notice


@pytest.mark.parametrize("path", ["/sweeps", "/sweeps/preview"])
def test_a_refused_file_stays_in_its_form_with_the_reason(
    client: FlaskClient, engine: sa.Engine, path: str
) -> None:
    sweep = TOML.replace("[32, 64]", "-5") + "# </textarea>" + EVIL
    answer = client.post(path, data={"sweep": sweep, "csrf_token": csrf_of(client, "/sweeps/new")})
    page = answer.get_data(as_text=True)
    assert answer.status_code == 422
    assert "case[0].global_batch_size: expected a whole number" in html.unescape(page)
    assert file_of(page) == sweep
    assert EVIL not in page
    assert row_count(engine) == 0


@pytest.mark.parametrize("path", ["/sweeps", "/sweeps/preview"])
def test_an_uploaded_file_that_is_no_text_is_refused(client: FlaskClient, path: str) -> None:
    csrf_token = csrf_of(client, "/sweeps/new")
    data = {"csrf_token": csrf_token, "file": (io.BytesIO(b"\xff\xd8\xff"), "a.jpg")}
    answer = client.post(path, data=data, content_type="multipart/form-data")
    assert answer.status_code == 422
    assert "file: expected a TOML file" in text_of(answer)


def test_an_uploaded_sweep_of_two_megabytes_is_refused_unread(client: FlaskClient) -> None:
    sweep = FileStorage(io.BytesIO(TOML.encode() + b"#" * 2_000_000), "sweep.toml")
    answer = send_form(client, {"file": sweep})
    assert answer.status_code == 422
    assert "file: expected at most 1.05 MB" in text_of(answer)


def test_a_body_of_two_megabytes_is_refused(client: FlaskClient) -> None:
    for path in ("/sweeps", "/sweeps/preview"):
        assert client.post(path, data={"sweep": "x" * (2 << 20)}).status_code == 413


def test_a_preview_that_is_not_kept_is_gone(client: FlaskClient) -> None:
    for path in ("/sweeps/preview", "/sweeps/preview/sweep.toml", "/sweeps/new"):
        answer = client.get(f"{path}?draft=nothing")
        assert answer.status_code == 410
        assert "not kept any longer" in text_of(answer)
        assert client.get(f"{path}?colour=red").status_code == 400


def test_only_who_may_submit_sees_a_form_or_a_preview(engine: sa.Engine) -> None:
    seed(engine)
    stranger = client_of(engine, FARM_API_TOKEN=TOKEN, FARM_OPEN_READING="1")
    page = stranger.get("/sweeps/new").get_data(as_text=True)
    assert "<form" not in page
    assert "sign in" in page
    for method, path in (("GET", "/sweeps/preview?draft=x"), ("POST", "/sweeps/preview")):
        answer = stranger.open(path, method=method)
        assert (answer.status_code, answer.headers["Location"][:6]) == (303, "/login")
    sign_in(stranger, make_api_token(engine, "reader", scope=Scope.READ))
    page = stranger.get("/sweeps/new").get_data(as_text=True)
    assert 'action="/sweeps' not in page
    assert "the scope <code>submit</code>" in page
    assert stranger.get("/sweeps/preview?draft=x").status_code == 403


@pytest.mark.parametrize("path", ["/sweeps", "/sweeps/preview"])
def test_a_form_without_its_secret_changes_nothing(
    client: FlaskClient, engine: sa.Engine, path: str
) -> None:
    assert client.post(path, data={"sweep": TOML}).status_code == 403
    assert row_count(engine) == 0
