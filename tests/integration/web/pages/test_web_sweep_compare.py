"""Two sweeps compared on the page."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from flask.testing import FlaskClient

from tests import factories
from tests.integration.web.pages.test_web_sweep_page import add_measured, grid, page_of, text_of
from tests.web.web_client import client_of


@pytest.fixture
def client(engine: sa.Engine) -> FlaskClient:
    return client_of(engine)


def test_without_sweeps_the_page_asks_which(client: FlaskClient, engine: sa.Engine) -> None:
    add_measured(engine, *grid(repetitions=1), name="before")
    page = page_of(client, "/sweeps/compare?a=1&b=")
    assert '<option value="1" selected>1: before</option>' in page
    assert "Cells in common" not in page


def test_common_cells_have_ratio_interval_and_verdict(
    client: FlaskClient, engine: sa.Engine
) -> None:
    add_measured(engine, *grid(), factories.job_spec(global_batch_size=256), name="before")
    more = [factories.job_spec(world_size=8, global_batch_size=64)]
    add_measured(engine, *grid(), *more, name="after", factor=2.0)
    text = text_of(page_of(client, "/sweeps/compare?a=1&b=2"))
    assert "6, of which 6 differ beyond noise; of 6 equal ones about 0.30 would" in text
    assert "mwms_ring, 2 agents, batch 64, mlp on digits 50.5 ms" in text
    assert "101 ms" in text
    assert text.count("slower") == 6
    assert "Only in before single, 1 agent, batch 256" in text
    assert "Only in after mwms_ring, 8 agents" in text
    turned = text_of(page_of(client, "/sweeps/compare?a=2&b=1&sort=difference"))
    assert turned.count("faster") == 6


def test_equal_sweeps_do_not_differ_and_few_repetitions_say_nothing(
    client: FlaskClient, engine: sa.Engine
) -> None:
    add_measured(engine, *grid(), name="one")
    add_measured(engine, *grid(), name="two", factor=1.002)
    add_measured(engine, *grid(repetitions=1), name="three")
    assert "of which 0 differ beyond noise" in text_of(page_of(client, "/sweeps/compare?a=1&b=2"))
    text = text_of(page_of(client, "/sweeps/compare?a=1&b=3"))
    assert text.count("too few repetitions") == 6


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("a=1&b=4711", 404),
        ("a=x&b=1", 400),
        ("a=1&b=1", 400),
        ("a=1&sort=name", 400),
        ("c=1", 400),
    ],
)
def test_what_cannot_be_compared_is_refused(
    client: FlaskClient, engine: sa.Engine, query: str, status: int
) -> None:
    add_measured(engine, *grid(repetitions=1))
    assert client.get(f"/sweeps/compare?{query}").status_code == status


def test_sweeps_that_share_nothing_say_so(client: FlaskClient, engine: sa.Engine) -> None:
    add_measured(engine, factories.job_spec(global_batch_size=8))
    add_measured(engine, factories.job_spec(global_batch_size=16))
    text = text_of(page_of(client, "/sweeps/compare?a=1&b=2"))
    assert "None: no configuration is in both" in text
