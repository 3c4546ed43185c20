"""The page of predicted against measured step times of a sweep."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from flask.testing import FlaskClient

from tests.e2e.live_farm import wait_until
from tests.integration.web.pages.test_web_sweep_page import add_measured, grid, page_of, text_of
from tests.web.web_client import client_of
from web.pages import prediction


@pytest.fixture
def client(engine: sa.Engine) -> FlaskClient:
    return client_of(engine)


def test_the_cells_are_predicted_beside_the_requests_and_then_drawn(
    client: FlaskClient, engine: sa.Engine
) -> None:
    pytest.importorskip("sklearn", reason="needs the extra ml")
    sweep_id = add_measured(engine, *grid(delays_s=(0.0, 0.02, 0.05), repetitions=1))
    address = f"/sweeps/{sweep_id}/prediction"
    assert f'href="{address}"' in page_of(client, f"/sweeps/{sweep_id}")
    first = page_of(client, address)
    assert "are being predicted" in text_of(first)
    assert "data-busy" in first

    def made() -> str:
        page = page_of(client, address)
        return "" if "are being predicted" in text_of(page) else page

    page = wait_until(made, "the cells are predicted")
    assert 'id="plot-predicted"' in page
    assert 'id="plot-prediction-error"' in page
    assert "median error" in text_of(page)
    assert "data-busy" not in page


def test_too_few_cells_are_said_to_be_too_few(client: FlaskClient, engine: sa.Engine) -> None:
    sweep_id = add_measured(engine, *grid(repetitions=1)[:3])
    address = f"/sweeps/{sweep_id}/prediction"

    def refused() -> str:
        text = text_of(page_of(client, address))
        return text if "Not predicted" in text else ""

    assert "too few" in wait_until(refused, "the page says why")


def test_more_than_a_page_predicts_is_left_to_the_command(
    client: FlaskClient, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prediction, "MOST_MEASUREMENTS", 2)
    sweep_id = add_measured(engine, *grid(repetitions=1)[:3])
    text = text_of(page_of(client, f"/sweeps/{sweep_id}/prediction"))
    assert f"farm plot {sweep_id} --kind prediction" in text


def test_there_is_none_of_no_sweep(client: FlaskClient) -> None:
    assert client.get("/sweeps/4711/prediction").status_code == 404
