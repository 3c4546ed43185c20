"""The page of a cell's history, and the ways to it."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from flask.testing import FlaskClient

from farm.store.engine import writing
from tests.integration.web.pages.test_web_sweep_page import page_of, text_of
from tests.stored.histories import BEFORE, SLOWER, add_day, hardware
from tests.web.web_client import client_of


@pytest.fixture
def client(engine: sa.Engine) -> FlaskClient:
    return client_of(engine)


def test_each_cell_of_a_sweep_leads_to_what_changed_in_it_over_days(
    client: FlaskClient, engine: sa.Engine
) -> None:
    with writing(engine) as session:
        add_day(session, 0, *BEFORE)
        add_day(session, 1, *SLOWER, framework="torch <2.13.1>")
        add_day(session, 2, 0.1, ranks=[hardware(cpu_model="Another")], fingerprint="other")
        add_day(session, 3, failed_count=1)
    assert '<a id="history-4" class="small" href="/jobs/4/history">' in page_of(client, "/sweeps/2")
    page = page_of(client, "/jobs/4/history")
    assert "torch 2.13.0 -&gt; &lt;2.13.1&gt;" in page
    text = text_of(page)
    assert "1.200 1." in text
    for words in ("slower", "first on these machines", "failed"):
        assert words in text
    assert "mlp on digits, batch 32, single, world size 1" in text
    # A panel for each kind of machine, and the words of the event in both forms.
    assert page.count("data-plot") == 2
    assert '"events":[{"x":1.5,"text":' in page


def test_older_sweeps_are_on_a_page_of_their_own(client: FlaskClient, engine: sa.Engine) -> None:
    with writing(engine) as session:
        for day in range(32):
            add_day(session, day, *BEFORE)
    page = page_of(client, "/jobs/1/history")
    assert '<a id="older" href="/jobs/1/history?before=3">' in page
    assert "day 1<" not in page
    older = page_of(client, "/jobs/1/history?before=3")
    assert "day 1<" in older
    assert 'id="older"' not in older


def test_a_cell_of_which_nothing_is_measured_has_a_page(
    client: FlaskClient, engine: sa.Engine
) -> None:
    with writing(engine) as session:
        add_day(session, 0)
    page = page_of(client, "/jobs/1/history")
    assert "waiting" in text_of(page)
    assert "data-plot" not in page


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/jobs/9/history", 404),
        ("/jobs/x/history", 404),
        ("/jobs/9/history?before=x", 400),
        ("/jobs/9/history?after=1", 400),
    ],
)
def test_what_is_not_there_is_refused(client: FlaskClient, path: str, status: int) -> None:
    assert client.get(path).status_code == status
