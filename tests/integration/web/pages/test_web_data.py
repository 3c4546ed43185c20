"""The pages of origins, and the import of tables and studies."""

from __future__ import annotations

import html
import io
import re
import zipfile
from typing import cast

import pytest
import sqlalchemy as sa
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from farm.importers import IMPORTERS
from farm.store.engine import reading, writing
from farm.store.measurements.measurements import MeasurementFilter, list_measurements
from farm.store.result_tables import MeasurementRow
from tests import factories
from tests.e2e.live_farm import wait_until
from tests.web.web_client import TOKEN, client_of, csrf_of, seed
from web.backend import Backend

EVIL = "<script>alert('x')</script>"
HEADER = "world_size,global_batch_size,step_time_s\n"
GOOD = (HEADER + "1,64,0.5\n2,64,0.3\n").encode()


@pytest.fixture
def client(engine: sa.Engine) -> FlaskClient:
    return client_of(engine)


def _text(answer: TestResponse) -> str:
    page = re.sub(r"<[^>]*>", " ", answer.get_data(as_text=True))
    return " ".join(html.unescape(page).split())


def _stored(engine: sa.Engine, origin: str) -> list[MeasurementRow]:
    with reading(engine) as session:
        return list(list_measurements(session, MeasurementFilter(origin=origin), limit=1000))


def _look(
    client: FlaskClient, content: bytes, *, origin: str = "mine", name: str = "t.csv", **more: str
) -> TestResponse:
    data = {"csrf_token": csrf_of(client, "/data"), "origin": origin, **more}
    return client.post("/data/preview", data={**data, "file": (io.BytesIO(content), name)})


def _sent(client: FlaskClient, content: bytes) -> TestResponse:
    """Send a large table as `_look` does, without the client's own file for large bodies."""
    fields = {"csrf_token": csrf_of(client, "/data"), "origin": "mine"}
    parts = [
        f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in fields.items()
    ]
    head = b'--b\r\nContent-Disposition: form-data; name="file"; filename="t.csv"\r\n\r\n'
    return client.post(
        "/data/preview",
        data=b"".join([*parts, head, content, b"\r\n--b--\r\n"]),
        content_type="multipart/form-data; boundary=b",
    )


def _confirm(client: FlaskClient, preview: TestResponse) -> TestResponse:
    form = preview.get_data(as_text=True).split('action="/data/import"', 1)[1]
    fields = re.findall(r'name="([a-z_]+)" value="([^"]*)"', form)
    return client.post("/data/import", data={k: html.unescape(v) for k, v in fields})


def test_an_empty_store_offers_the_published_studies(client: FlaskClient) -> None:
    text = _text(client.get("/data"))
    assert "Nothing is measured yet" in text
    for publication in IMPORTERS:
        assert publication.citation in text


def test_a_study_is_imported_by_one_click_and_shown(client: FlaskClient, engine: sa.Engine) -> None:
    data = {"csrf_token": csrf_of(client, "/data")}
    answer = client.post("/data/studies/anwar2021", data=data)
    assert (answer.status_code, answer.headers["Location"]) == (303, "/data/origin?name=anwar2021")
    assert len(_stored(engine, "anwar2021")) == 114
    text = _text(client.get("/data"))
    assert "114 measurements, 1 failed" in text
    assert "M. H. Anwar" in text
    again = client.post("/data/studies/anwar2021", data=data)
    assert again.status_code == 303
    assert len(_stored(engine, "anwar2021")) == 114
    assert client.post("/data/studies/nothing", data=data).status_code == 404


def test_suspicious_measurements_are_named_with_their_evidence(client: FlaskClient) -> None:
    data = {"csrf_token": csrf_of(client, "/data")}
    client.post("/data/studies/anwar2021", data=data)
    first = client.get("/data/origin?name=anwar2021")
    assert "A model is being fitted" in first.get_data(as_text=True)

    def found() -> str | None:
        page = client.get("/data/origin?name=anwar2021").get_data(as_text=True)
        return None if "data-busy" in page else page

    page = wait_until(found, "a model was fitted")
    assert page is not None
    rows = re.findall(r'href="/data/measurements/(\d+)"', page)
    assert rows
    one = client.get(f"/data/measurements/{rows[0]}")
    assert one.status_code == 200
    assert "As its source printed it" in _text(one) or "As it is stored" in _text(one)


def test_the_farm_is_not_fitted_to_unless_that_is_asked(
    client: FlaskClient, engine: sa.Engine
) -> None:
    with writing(engine) as session:
        factories.add_measurement(session, "x")
    page = client.get("/data/origin?name=farm").get_data(as_text=True)
    assert "Look for them" in page
    assert "data-busy" not in page
    assert "Remove" not in page
    suspicious = client.get("/data/origin?name=farm&suspicious=yes").get_data(as_text=True)
    assert "Look for them" not in suspicious


def test_a_table_is_looked_at_before_anything_is_stored(
    client: FlaskClient, engine: sa.Engine
) -> None:
    preview = _look(client, GOOD)
    assert preview.status_code == 200
    text = _text(preview)
    assert "Import table t.csv as mine?" in text
    assert "would be added 2" in text or "2 would be added" in text
    assert _stored(engine, "mine") == []
    answer = _confirm(client, preview)
    assert (answer.status_code, answer.headers["Location"]) == (303, "/data/origin?name=mine")
    assert [row.world_size for row in _stored(engine, "mine")] == [1, 2]
    assert "2 measurements added" in _text(client.get("/data/origin?name=mine"))
    again = _look(client, GOOD)
    assert "2" in _text(again).split("are there already", 1)[1][:10]


def test_what_is_converted_is_said_before_it_is_stored(
    client: FlaskClient, engine: sa.Engine
) -> None:
    preview = _look(client, b"world_size,global_batch_size,step_time_ms\n2,64,250\n")
    assert preview.status_code == 200
    assert "Converted: step_time_s = step_time_ms / 1000." in _text(preview)
    _confirm(client, preview)
    assert [row.step_time_s for row in _stored(engine, "mine")] == [0.25]


def test_every_bad_cell_is_named_and_nothing_is_stored(
    client: FlaskClient, engine: sa.Engine
) -> None:
    bad = (HEADER + "1,64,0.5\n2,64,0\n0,64,0.5\n4,x,0.5\n").encode()
    answer = _look(client, bad)
    assert answer.status_code == 422
    text = _text(answer)
    assert "3 cells of table t.csv cannot be used" in text
    for where in (
        "row 3, column step_time_s",
        "row 4, column world_size",
        "row 5, column global_batch_size",
    ):
        assert where in text
    assert "/data/import" not in answer.get_data(as_text=True)
    assert _stored(engine, "mine") == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "this column: it is required"),
        (b"world_size|global_batch_size\n1|64\n", "commas, semicolons or tabs between the columns"),
        (b"\xff\xfe\x00", "text in UTF-8"),
        (b"world_size,global_batch_size,speed\n1,64,3\n", "column speed"),
        (GOOD.replace(b"0.5", b"0.5,0.5"), "3 cells as in row 1"),
    ],
)
def test_what_is_no_table_is_refused_in_one_line(
    client: FlaskClient, engine: sa.Engine, content: bytes, message: str
) -> None:
    answer = _look(client, content)
    assert answer.status_code == 422
    assert message in _text(answer)
    assert 'value="mine"' in answer.get_data(as_text=True)  # the form keeps what was typed
    assert _stored(engine, "mine") == []


def test_columns_can_be_left_out_and_old_rows_replaced(
    client: FlaskClient, engine: sa.Engine
) -> None:
    _confirm(client, _look(client, GOOD))
    longer = b"world_size,global_batch_size,step_time_s,speed\n2,64,0.3,9\n"
    preview = _look(client, longer, ignored="speed", replace="yes")
    assert preview.status_code == 200, _text(preview)
    assert _confirm(client, preview).status_code == 303
    assert [row.world_size for row in _stored(engine, "mine")] == [2]


def test_spaces_around_an_origin_do_not_count_and_old_rows_stay_unless_asked(
    client: FlaskClient, engine: sa.Engine
) -> None:
    _confirm(client, _look(client, GOOD))
    shorter = (HEADER + "2,64,0.3\n").encode()
    _confirm(client, _look(client, shorter, origin=" mine ", replace="no"))
    assert [row.world_size for row in _stored(engine, "mine")] == [1, 2]


@pytest.mark.parametrize("origin", ["farm", "FARM", "", "x" * 65, "a\x00b", "a\nb"])
def test_an_origin_that_cannot_be_is_refused(client: FlaskClient, origin: str) -> None:
    answer = _look(client, GOOD, origin=origin)
    assert answer.status_code == 422
    assert "origin: expected" in _text(answer)


def test_a_table_is_not_mixed_with_a_study(client: FlaskClient, engine: sa.Engine) -> None:
    client.post("/data/studies/anwar2021", data={"csrf_token": csrf_of(client, "/data")})
    answer = _look(client, GOOD, origin="anwar2021")
    assert answer.status_code == 422
    assert "take another name" in _text(answer)


def test_names_in_a_table_are_shown_and_never_run(client: FlaskClient) -> None:
    table = f'model,strategy,world_size,global_batch_size,step_time_s\n"{EVIL}","{EVIL}",1,8,1\n'
    preview = _look(client, table.encode(), origin=EVIL, name=f"{EVIL}.csv")
    assert preview.status_code == 200
    assert EVIL not in preview.get_data(as_text=True)
    answer = _confirm(client, preview)
    assert answer.status_code == 303
    for path in (answer.headers["Location"], "/data", "/data/measurements/1"):
        page = client.get(path).get_data(as_text=True)
        assert EVIL not in page
        assert "&lt;script&gt;" in page


def test_a_file_name_is_no_path(client: FlaskClient) -> None:
    answer = _look(client, GOOD, name="../../etc/passwd.csv")
    assert "Import table passwd.csv as mine?" in _text(answer)


def test_a_file_may_be_larger_than_other_bodies_and_not_without_end(client: FlaskClient) -> None:
    wide = (f"{'m' * 150},2,64,0.5\n" * 8_000).encode()
    assert 1 << 20 < len(wide) < 5 << 20
    assert _sent(client, f"model,{HEADER}".encode() + wide).status_code == 200
    too_much = _sent(client, b"x" * (6 << 20))
    assert too_much.status_code == 413
    assert "5 MiB" in _text(too_much)
    other = client.post("/sweeps", data={"sweep": "x" * (2 << 20)})
    assert other.status_code == 413
    assert "1 MiB" in _text(other)


def test_a_file_that_is_not_kept_any_longer_is_asked_for_again(client: FlaskClient) -> None:
    data = {"csrf_token": csrf_of(client, "/data"), "ticket": "nothing", "origin": "mine"}
    answer = client.post("/data/import", data=data)
    assert answer.status_code == 410
    assert "choose it again" in _text(answer)


def _bundle(client: FlaskClient, content: bytes, **more: str) -> TestResponse:
    data = {"csrf_token": csrf_of(client, "/data"), **more}
    return client.post("/data/bundle", data={**data, "file": (io.BytesIO(content), "b.zip")})


def test_a_sweep_is_downloaded_and_imported_as_one_file(
    client: FlaskClient, engine: sa.Engine
) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra plot")
    sweep = seed(engine).sweep_id
    assert f'href="/api/v1/sweeps/{sweep}/bundle"' in client.get(f"/sweeps/{sweep}").text
    archive = client.get(f"/api/v1/sweeps/{sweep}/bundle")
    assert (archive.status_code, archive.mimetype) == (200, "application/zip")
    assert archive.headers["Content-Disposition"].startswith("attachment; filename=sweep-1-")
    with zipfile.ZipFile(io.BytesIO(archive.data)) as file:
        assert {"manifest.json", "report.html", "samples.parquet"} <= set(file.namelist())
    for message in ("2 measurements added, 0 were", "0 measurements added, 2 were"):
        answer = _bundle(client, archive.data)
        assert answer.status_code == 303, _text(answer)
        assert message in _text(client.get(answer.headers["Location"]))
    row = _stored(engine, "farm-unknown-sweep-1")[0]
    assert row.details["source"].startswith("sweep 1, ")
    [link] = re.findall(
        r'href="(/data/samples\.csv[^"]*)"', client.get(f"/data/origin?name={row.origin}").text
    )
    assert client.get(html.unescape(link)).text.count("\n") == 19
    assert client.get("/data/samples.csv?name=nowhere").status_code == 404
    assert client.get("/data/samples.xml?name=nowhere").status_code == 404
    answer = _bundle(client, archive.data, origin="elsewhere")
    assert answer.headers["Location"].endswith("name=elsewhere")
    refused = _look(client, GOOD, origin="elsewhere")
    assert refused.status_code == 422
    assert "an origin that does not hold sweep 1, " in _text(refused)
    _confirm(client, _look(client, GOOD))
    refused = _bundle(client, archive.data, origin="mine")
    assert refused.status_code == 422
    assert "an origin that does not hold table t.csv already" in _text(refused)
    assert client.get("/api/v1/sweeps/99/bundle").status_code == 404
    lock = cast(Backend, client.application.extensions["benchfarm"]).bundling
    with lock:  # as while another is worked on
        busy = client.get(f"/api/v1/sweeps/{sweep}/bundle")
        assert (busy.status_code, busy.headers["Retry-After"]) == (429, "5")
        assert _bundle(client, archive.data).status_code == 429


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no archive", "bundle: expected a ZIP file"),
        (b"PK\x05\x06" + bytes(18), "expected a ZIP file with manifest.json"),
        (b"", "expected a ZIP file"),
    ],
)
def test_a_file_that_is_no_bundle_is_refused_and_nothing_stored(
    client: FlaskClient, engine: sa.Engine, content: bytes, message: str
) -> None:
    refused = _bundle(client, content, origin=EVIL, replace="yes")
    assert refused.status_code == 422
    assert message in _text(refused)
    assert EVIL not in refused.get_data(as_text=True)
    with reading(engine) as session:
        assert list(list_measurements(session, MeasurementFilter(), limit=10)) == []


def test_an_imported_origin_is_removed_after_a_question(
    client: FlaskClient, engine: sa.Engine
) -> None:
    _confirm(client, _look(client, GOOD))
    page = client.get("/data/remove?name=mine")
    assert "Remove mine?" in _text(page)
    assert len(_stored(engine, "mine")) == 2
    data = {"csrf_token": csrf_of(client, "/data"), "name": "mine"}
    answer = client.post("/data/remove", data=data)
    assert (answer.status_code, answer.headers["Location"]) == (303, "/data")
    assert _stored(engine, "mine") == []
    assert client.get("/data/origin?name=mine").status_code == 404


def test_the_farms_own_measurements_are_never_removed(
    client: FlaskClient, engine: sa.Engine
) -> None:
    with writing(engine) as session:
        factories.add_measurement(session, "x")
    assert client.get("/data/remove?name=farm").status_code == 400
    data = {"csrf_token": csrf_of(client, "/data"), "name": "farm"}
    assert client.post("/data/remove", data=data).status_code == 422
    assert len(_stored(engine, "farm")) == 1


def test_only_who_is_signed_in_imports_or_removes(engine: sa.Engine) -> None:
    client = client_of(engine, FARM_API_TOKEN=TOKEN, FARM_OPEN_READING="1")
    page = client.get("/data").get_data(as_text=True)
    assert "sign in" in page
    assert 'type="file"' not in page
    for path in (
        "/data/studies/anwar2021",
        "/data/preview",
        "/data/import",
        "/data/bundle",
        "/data/remove",
    ):
        answer = client.post(path, data={"name": "x"})
        assert (answer.status_code, answer.headers["Location"]) == (303, "/login")
    assert _stored(engine, "anwar2021") == []


@pytest.mark.parametrize("path", ["/data/studies/anwar2021", "/data/import", "/data/remove"])
def test_a_form_without_its_secret_changes_nothing(
    client: FlaskClient, engine: sa.Engine, path: str
) -> None:
    assert client.post(path, data={"name": "x", "origin": "x"}).status_code == 403
    assert _stored(engine, "anwar2021") == []


@pytest.mark.parametrize("name", ["", "nowhere", "'; --", "<b>", "%00", "x" * 5000])
def test_an_origin_that_is_not_there_is_not_found(client: FlaskClient, name: str) -> None:
    answer = client.get("/data/origin", query_string={"name": name})
    assert answer.status_code == 404
    assert "<b>" not in answer.get_data(as_text=True)


@pytest.mark.parametrize("bad_id", ["0", "-1", "x", "9" * 30, "99", "1%00", "'"])
def test_a_measurement_that_is_not_there_is_not_found(client: FlaskClient, bad_id: str) -> None:
    assert client.get(f"/data/measurements/{bad_id}").status_code == 404


def test_ids_in_a_page_are_unique_and_nothing_is_inline(
    client: FlaskClient, engine: sa.Engine
) -> None:
    _confirm(client, _look(client, GOOD))
    for path in ("/data", "/data/origin?name=mine", "/data/remove?name=mine"):
        page = client.get(path).get_data(as_text=True)
        ids = re.findall(r' id="([^"]*)"', page)
        assert len(ids) == len(set(ids)), path
        assert "style=" not in page
        assert not re.search(r"<script(?! src=\"/static/)", page)
