"""Sweeps over the API: looked at before they are sent, paused, resumed and asked for again."""

from __future__ import annotations

import datetime as dt
import json

import pytest
import sqlalchemy as sa
from flask.testing import FlaskClient

from farm.gang.lifecycle import JobState
from farm.store.engine import reading, writing
from farm.store.queue.waiting import waiting_jobs
from farm.store.tables import JobRow, SweepRow
from tests import factories
from tests.web.web_client import SWEEP, Seeded, client_of, fitted, seed


@pytest.fixture
def client(engine: sa.Engine) -> FlaskClient:
    return client_of(engine)


@pytest.fixture
def seeded(engine: sa.Engine) -> Seeded:
    return seed(engine)


def _sweep_count(engine: sa.Engine) -> int:
    with reading(engine) as session:
        return session.scalar(sa.select(sa.func.count()).select_from(SweepRow)) or 0


def _waiting(engine: sa.Engine) -> list[int]:
    with reading(engine) as session:
        found = waiting_jobs(session, now=dt.datetime.now(dt.UTC) + dt.timedelta(days=1))
    return sorted(job.job_id for job in found)


def test_a_preview_lists_the_jobs_and_writes_nothing(
    client: FlaskClient, engine: sa.Engine
) -> None:
    shown = client.post("/api/v1/sweeps/preview", json=SWEEP).json
    assert shown is not None
    assert (shown["name"], shown["job_count"], shown["max_job_count"]) == ("two cells", 2, 2)
    assert sorted(job["global_batch_size"] for job in shown["jobs"]) == [32, 64]
    assert (shown["has_more_jobs"], shown["skipped"]) == (False, [])
    assert shown["expected"]["known_count"] == 0
    assert sum(shown["expected"]["unknown"].values()) == 2
    assert _sweep_count(engine) == 0


def test_an_id_is_not_the_name_of_another_sweep(client: FlaskClient, engine: sa.Engine) -> None:
    seed(engine)
    with writing(engine) as session:
        session.execute(sa.update(SweepRow).values(name="99"))
    for path in ("", "/bundle", "/figure"):
        assert client.get(f"/api/v1/sweeps/99{path}").status_code == 404


def test_a_preview_names_what_cannot_run(client: FlaskClient) -> None:
    case = {"model": "mlp", "dataset": "digits", "strategy": "single", "global_batch_size": 8}
    sweep = {"name": "x", "case": [{**case, "world_size": [1, 2]}]}
    refused = client.post("/api/v1/sweeps/preview", json=sweep)
    assert refused.status_code == 422
    assert json.loads(refused.data)["field"] == "case[0].world_size"
    shown = client.post("/api/v1/sweeps/preview", json={**sweep, "skip_impossible": True}).json
    assert shown is not None
    assert shown["job_count"] == 1
    assert "expected 1 for strategy 'single', got 2" in shown["skipped"][0]


def test_a_preview_expects_what_the_farm_measured(client: FlaskClient, engine: sa.Engine) -> None:
    with writing(engine) as session:
        for number, batch_size in enumerate((16, 32, 64, 128, 256, 512)):
            factories.add_measurement(
                session,
                f"row {number}",
                model="mlp",
                dataset="digits",
                strategy="single",
                global_batch_size=batch_size,
                step_time_s=0.001 + 0.001 * batch_size,
                instance_type="Standard_D2s_v3",
            )
    # The first fit is waited for by a recommendation, and never by a preview.
    fitted(client, "/api/v1/recommendation?global_batch_size=100")
    shown = client.post("/api/v1/sweeps/preview", json=SWEEP).json
    assert shown is not None
    found = shown["expected"]
    assert (found["known_count"], found["job_count"]) == (2, 2)
    # 5 warm-up and 30 timed steps of 33 and of 65 ms
    assert found["training_s"] == pytest.approx(35 * 0.098, rel=0.5)
    assert found["training_s"] < found["training_high_s"]
    assert found["cost_usd"] > 0


def test_a_preview_takes_a_sweep_file_as_it_is(client: FlaskClient) -> None:
    text = 'name = "t"\n[[case]]\nmodel = "mlp"\ndataset = "digits"\nstrategy = "single"\n'
    text += "world_size = 1\nglobal_batch_size = 32\n"
    shown = client.post("/api/v1/sweeps/preview", data=text, content_type="application/toml").json
    assert shown is not None
    assert shown["job_count"] == 1


def test_a_preview_of_a_billion_jobs_is_refused(client: FlaskClient) -> None:
    refused = client.post("/api/v1/sweeps/preview", json={**SWEEP, "repetitions": 10**9})
    assert refused.status_code == 422
    assert "at most 100000 jobs" in json.loads(refused.data)["detail"]


def test_no_job_of_a_paused_sweep_is_placed(
    client: FlaskClient, engine: sa.Engine, seeded: Seeded
) -> None:
    with writing(engine) as session:
        other = factories.add_job(session)
    path = f"/api/v1/sweeps/{seeded.sweep_id}"
    assert _waiting(engine) == [seeded.waiting, other]
    for changed in (True, False):
        answer = client.post(f"{path}/pause", json={}).json
        assert answer == {"id": seeded.sweep_id, "is_paused": True, "changed": changed}
    assert _waiting(engine) == [other]
    sweep = client.get(path).json
    assert sweep is not None
    assert sweep["is_paused"] is True
    job = client.get(f"/api/v1/jobs/{seeded.waiting}").json
    assert job is not None
    assert job["waits_because"] == "its sweep is paused"
    with reading(engine) as session:
        assert session.get_one(JobRow, seeded.running).state is JobState.RUNNING
    assert client.post(f"{path}/resume", json={}).status_code == 200
    assert _waiting(engine) == [seeded.waiting, other]


def test_failed_jobs_of_a_sweep_are_asked_for_again(
    client: FlaskClient, engine: sa.Engine, seeded: Seeded
) -> None:
    path = f"/api/v1/sweeps/{seeded.sweep_id}/retry"
    assert client.post(path, json={}).json == {"id": seeded.sweep_id, "retried_count": 1}
    with reading(engine) as session:
        assert session.get_one(JobRow, seeded.failed).state is JobState.WAITING
    assert client.post(path, json={}).json == {"id": seeded.sweep_id, "retried_count": 0}


def test_a_sweep_over_its_budget_goes_on_with_another(
    client: FlaskClient, engine: sa.Engine
) -> None:
    for wrong in (0, -1, 1e7, "2", True, None, [2]):
        refused = client.post("/api/v1/sweeps", json={**SWEEP, "budget_machine_hours": wrong})
        assert (refused.status_code, (refused.json or {}).get("field")) == (
            422,
            "budget_machine_hours",
        ), wrong
    sent = client.post("/api/v1/sweeps", json={**SWEEP, "budget_machine_hours": 0.5}).json
    assert sent is not None
    path = f"/api/v1/sweeps/{sent['id']}"
    with writing(engine) as session:
        session.get_one(SweepRow, sent["id"]).budget_used_up_at = factories.NOW
    assert _waiting(engine) == []
    found = client.get(path).json
    assert found is not None
    assert (found["budget_machine_s"], found["spent_machine_s"]) == (1800.0, 0.0)
    assert found["is_budget_used_up"] is True
    assert found["spec"]["budget_machine_hours"] == 0.5
    [first, _] = (client.get("/api/v1/jobs").json or {})["items"]
    job = client.get(f"/api/v1/jobs/{first['id']}").json
    assert job is not None
    assert job["waits_because"] == "its sweep's budget of 0.5 machine hours is used up"
    assert client.post(f"{path}/resume", json={}).status_code == 409
    for wrong in (0, "1", None, True):
        refused = client.post(f"{path}/resume", json={"budget_machine_hours": wrong})
        assert refused.status_code == 422, wrong
    answer = client.post(f"{path}/resume", json={"budget_machine_hours": 1}).json
    assert answer == {"id": sent["id"], "is_paused": False, "changed": True}
    assert len(_waiting(engine)) == 2


@pytest.mark.parametrize("action", ["pause", "resume", "retry"])
def test_an_unknown_sweep_is_not_found(client: FlaskClient, action: str) -> None:
    for sweep_id in ("99", "x", "0", "9" * 30, "'; DROP TABLE sweeps; --"):
        answer = client.post(f"/api/v1/sweeps/{sweep_id}/{action}", json={})
        assert answer.status_code == 404, sweep_id
