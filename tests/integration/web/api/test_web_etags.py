"""What changes rarely is sent once to who asks with its tag; what still changes has none."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from flask.testing import FlaskClient

from farm.store.engine import writing
from farm.store.sweeps.jobs import retry_job
from tests import factories
from tests.web.web_client import Seeded, client_of, seed


@pytest.fixture
def client(engine: sa.Engine) -> FlaskClient:
    return client_of(engine)


@pytest.fixture
def seeded(engine: sa.Engine) -> Seeded:
    return seed(engine)


def test_a_finished_job_is_sent_once(client: FlaskClient, seeded: Seeded) -> None:
    for path in (
        f"/api/v1/jobs/{seeded.measured}",
        f"/api/v1/jobs/{seeded.measured}/series",
        "/api/v1/origins",
        "/api/v1/openapi.json",
    ):
        first = client.get(path)
        assert first.status_code == 200
        tag = first.headers["ETag"]
        assert first.headers["Cache-Control"] == "private, no-cache"
        for known in (tag, f'"other", {tag}', f"W/{tag}", "*"):
            again = client.get(path, headers={"If-None-Match": known})
            assert (again.status_code, again.get_data()) == (304, b""), (path, known)
            assert again.headers["ETag"] == tag
        other = client.get(path, headers={"If-None-Match": '"other"'})
        assert (other.status_code, other.get_data()) == (200, first.get_data())


def test_a_tag_is_worth_nothing_once_the_answer_is_another(
    client: FlaskClient, engine: sa.Engine, seeded: Seeded
) -> None:
    known = {
        path: client.get(path).headers["ETag"]
        for path in (
            "/api/v1/origins",
            f"/api/v1/jobs/{seeded.failed}",
        )
    }
    with writing(engine) as session:
        factories.add_measurement(session, "another", origin="study")
        retry_job(session, seeded.failed, now=factories.NOW)
    for path, tag in known.items():
        assert client.get(path, headers={"If-None-Match": tag}).status_code == 200, path


def test_what_is_not_over_has_no_tag(client: FlaskClient, seeded: Seeded) -> None:
    for path in (
        f"/api/v1/jobs/{seeded.running}",
        f"/api/v1/jobs/{seeded.waiting}",
        f"/api/v1/sweeps/{seeded.sweep_id}",
    ):
        answer = client.get(path)
        assert answer.status_code == 200
        assert "ETag" not in answer.headers


def test_a_finished_sweep_is_sent_once(
    client: FlaskClient, engine: sa.Engine, seeded: Seeded
) -> None:
    path = f"/api/v1/sweeps/{seeded.sweep_id}"
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE jobs SET attempt_id = NULL, state = 'cancelled'"))
        # Of one that runs, what the sweep has spent grows by the second.
        connection.execute(
            sa.text("UPDATE attempts SET ended_at = leased_at WHERE ended_at IS NULL")
        )
    tag = client.get(path).headers["ETag"]
    assert client.get(path, headers={"If-None-Match": tag}).status_code == 304


@pytest.mark.parametrize("tag", ['"', "'", "W/", "x" * 5000, '"\\', "*,*", "\xff"])
def test_a_tag_that_is_none_is_not_known(client: FlaskClient, seeded: Seeded, tag: str) -> None:
    answer = client.get(f"/api/v1/jobs/{seeded.failed}", headers={"If-None-Match": tag})
    assert answer.status_code in (200, 304)
