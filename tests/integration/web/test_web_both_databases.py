"""A few pages and answers on SQLite and on PostgreSQL.

All other tests of the web run on SQLite. The tests of the store ask its queries of both databases
one by one; these see that a request, which asks many in one session and writes some, does so too.
"""

from __future__ import annotations

import csv
import io
import json

import pytest
import sqlalchemy as sa
from flask.testing import FlaskClient

from farm.store.engine import reading
from farm.store.tables import SweepRow
from tests.e2e.live_farm import wait_until
from tests.integration.web.pages.test_web_sweep_page import add_measured, grid
from tests.web.new_sweep_pages import enqueue, followed, look
from tests.web.web_client import SWEEP, client_of
from tests.web.web_reading import read

pytestmark = pytest.mark.parametrize("database_kind", ["sqlite", "postgresql"])


@pytest.fixture
def client(engine: sa.Engine) -> FlaskClient:
    return client_of(engine)


@pytest.fixture
def sweep_id(engine: sa.Engine) -> int:
    return add_measured(engine, *grid(delays_s=(0.02,)))


def _page(client: FlaskClient, path: str) -> str:
    answer = client.get(path, follow_redirects=True)
    assert answer.status_code == 200, answer.text[-2000:]
    return answer.text


def test_the_page_of_a_sweep(client: FlaskClient, sweep_id: int) -> None:
    page = _page(client, f"/sweeps/{sweep_id}?x=world_size&along=one_way_delay_ms")
    of_cells, _, of_jobs = page.partition('id="results"')
    for table in (of_cells, of_jobs):
        assert 'data-label="Step time" class="n"' in table
    assert _page(client, "/sweeps").count(f'href="/sweeps/{sweep_id}"') > 0


def test_the_page_of_a_job(client: FlaskClient, sweep_id: int) -> None:
    compared = _page(client, "/jobs/1").partition('id="compared"')[2].partition("</section>")[0]
    assert '<td data-label="Changed">' in compared


def test_the_page_of_advice(client: FlaskClient, sweep_id: int) -> None:
    path = "/advice?global_batch_size=64"

    def fitted_page() -> str | None:
        page = _page(client, path)
        return None if "data-busy" in page else page

    page = wait_until(fitted_page, "advice rests on a fit") or ""
    assert "Recommended for batch 64" in read(page)


def test_an_export(client: FlaskClient, sweep_id: int) -> None:
    text = client.get(f"/sweeps/{sweep_id}/export.csv").text
    rows = list(csv.DictReader(io.StringIO(text)))
    listed = json.loads(client.get(f"/sweeps/{sweep_id}/export.json").data)
    assert len(rows) == 18
    assert [row["step_time_s"] for row in listed] == [float(row["step_time_s"]) for row in rows]


def test_a_program_and_a_form_submit_a_sweep(client: FlaskClient, engine: sa.Engine) -> None:
    sent = [
        client.post("/api/v1/sweeps", json=SWEEP, headers={"Idempotency-Key": "one"})
        for _ in range(2)
    ]
    assert [answer.status_code for answer in sent] == [201, 201]
    assert sent[1].headers["Idempotency-Replayed"] == "true"
    preview = followed(client, look(client))
    assert enqueue(client, preview).status_code == 303
    with reading(engine) as session:
        assert session.scalar(sa.select(sa.func.count()).select_from(SweepRow)) == 2
