"""What can be taken away of a sweep: measurements as files, and its charts."""

from __future__ import annotations

import csv
import html
import io
import json
import sys
import xml.etree.ElementTree as ElementTree

import pytest
import sqlalchemy as sa
from flask.testing import FlaskClient

from farm.exporting import MEASUREMENTS
from farm.store.engine import writing
from farm.store.result_tables import MeasurementRow
from tests import factories
from tests.integration.web.pages.test_web_sweep_page import add_measured, grid, page_of
from tests.web.web_client import client_of
from web.drawing import downloads


@pytest.fixture
def client(engine: sa.Engine) -> FlaskClient:
    return client_of(engine)


@pytest.fixture
def sweep_id(engine: sa.Engine) -> int:
    return add_measured(engine, *grid(delays_s=(0.02,)), name="a/b \n ü")


def test_csv_and_json_have_a_row_for_each_measurement(client: FlaskClient, sweep_id: int) -> None:
    answer = client.get(f"/sweeps/{sweep_id}/export.csv")
    assert answer.status_code == 200
    assert answer.content_type == "text/csv; charset=utf-8"
    name = f"sweep-{sweep_id}-a-b.csv"
    assert answer.headers["Content-Disposition"] == f"attachment; filename={name}"
    rows = list(csv.DictReader(io.StringIO(answer.get_data(as_text=True))))
    assert tuple(rows[0]) == tuple(MEASUREMENTS)
    assert len(rows) == 18
    assert {row["one_way_delay_ms"] for row in rows} == {"0.0", "20.0"}
    downloaded = client.get(f"/sweeps/{sweep_id}/export.json")
    assert downloaded.content_type == "application/json"
    listed = json.loads(downloaded.get_data())
    assert [row["step_time_s"] for row in listed] == [float(row["step_time_s"]) for row in rows]
    assert listed[0]["accuracy"] is None


def test_parquet_has_the_same_rows_with_types(client: FlaskClient, sweep_id: int) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra server")
    content = client.get(f"/sweeps/{sweep_id}/export.parquet").get_data()
    table = parquet.read_table(io.BytesIO(content))
    assert tuple(table.column_names) == tuple(MEASUREMENTS)
    assert table.num_rows == 18
    types = {field.name: str(field.type) for field in table.schema}
    assert (types["world_size"], types["accuracy"], types["model"]) == ("int64", "double", "string")
    listed = json.loads(client.get(f"/sweeps/{sweep_id}/export.json").get_data())
    assert (types["idle_ratio"], types["update_count"]) == ("double", "int64")
    assert table.to_pylist() == listed


def test_a_text_that_a_spreadsheet_would_run_is_made_harmless(
    client: FlaskClient, engine: sa.Engine, sweep_id: int
) -> None:
    evil = ['=HYPERLINK("http://evil","x")', "+1", "-1", "@x", "\tx", "plain"]
    with writing(engine) as session:
        rows = session.scalars(sa.select(MeasurementRow).order_by(MeasurementRow.id))
        for row, text in zip(rows, evil, strict=False):
            row.instance_type = text
    answer = client.get(f"/sweeps/{sweep_id}/export.csv").get_data(as_text=True)
    written = [row["instance_type"] for row in csv.DictReader(io.StringIO(answer))]
    assert written[:6] == [f"'{text}" for text in evil[:5]] + ["plain"]
    exported = json.loads(client.get(f"/sweeps/{sweep_id}/export.json").get_data())
    assert [row["instance_type"] for row in exported[:6]] == evil  # no spreadsheet runs these


def test_a_sweep_without_measurements_is_an_empty_file(
    client: FlaskClient, engine: sa.Engine
) -> None:
    sweep_id = add_measured(engine)
    text = client.get(f"/sweeps/{sweep_id}/export.csv").get_data(as_text=True)
    assert text == ",".join(MEASUREMENTS) + "\n"
    assert json.loads(client.get(f"/sweeps/{sweep_id}/export.json").get_data()) == []


def test_more_rows_than_one_part_are_all_written(client: FlaskClient, engine: sa.Engine) -> None:
    specs = [factories.job_spec(repetition=n, seed=n) for n in range(1005)]
    sweep_id = add_measured(engine, *specs)
    exported = json.loads(client.get(f"/sweeps/{sweep_id}/export.json").get_data())
    assert [row["repetition"] for row in exported] == list(range(1005))


@pytest.mark.parametrize("name", ["map", "time", "bars"])
def test_charts_are_pictures_for_paper(client: FlaskClient, sweep_id: int, name: str) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra plot")
    page = page_of(client, f"/sweeps/{sweep_id}")
    for form, media_type in (("svg", "image/svg+xml; charset=utf-8"), ("png", "image/png")):
        assert f'href="/sweeps/{sweep_id}/charts/{name}.{form}"' in page
        answer = client.get(f"/sweeps/{sweep_id}/charts/{name}.{form}")
        assert (answer.status_code, answer.content_type) == (200, media_type)
        assert answer.headers["Content-Disposition"].endswith(f'-{name}.{form}"')
        if form == "svg":
            assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
            drawing = ElementTree.fromstring(answer.get_data())
            assert drawing.tag == "{http://www.w3.org/2000/svg}svg"
        else:
            assert answer.get_data().startswith(b"\x89PNG")


def test_without_matplotlib_no_picture_is_offered(
    client: FlaskClient, sweep_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    downloads.can_draw.cache_clear()
    try:
        page = page_of(client, f"/sweeps/{sweep_id}")
        for form in ("png", "svg"):
            assert f"/charts/map.{form}" not in page
            answer = client.get(f"/sweeps/{sweep_id}/charts/map.{form}")
            assert answer.status_code == 404
            assert "benchfarm[plot]" in html.unescape(answer.get_data(as_text=True))
    finally:
        downloads.can_draw.cache_clear()


def test_a_chart_follows_the_choice_of_the_page(client: FlaskClient, sweep_id: int) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra plot")
    path = f"/sweeps/{sweep_id}/charts/time.svg"
    other = client.get(f"{path}?along=global_batch_size")
    assert other.status_code == 200
    assert b"128" in other.get_data()
    assert other.get_data() != client.get(path).get_data()
    assert client.get(f"{path}?along=colour").status_code == 400
    for name in ("map", "time", "bars"):
        chosen = f"/sweeps/{sweep_id}/charts/{name}.svg?metric=accuracy"
        assert client.get(chosen).status_code in (200, 404)  # not every chart is of a metric


@pytest.mark.parametrize(
    "path",
    [
        "/sweeps/4711/export.csv",
        "/sweeps/4711/charts/map.svg",
        "/sweeps/1/export.xlsx",
        "/sweeps/1/export.",
        "/sweeps/1/charts/nothing.svg",
        "/sweeps/1/charts/nothing.png",
        "/sweeps/x/export.csv",
    ],
)
def test_what_is_not_there_is_not_found(client: FlaskClient, engine: sa.Engine, path: str) -> None:
    add_measured(engine, *grid(repetitions=1))
    assert client.get(path).status_code == 404
