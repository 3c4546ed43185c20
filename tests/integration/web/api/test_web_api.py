"""The JSON API on a real store: each resource as a program uses it."""

from __future__ import annotations

import datetime as dt
import json
import select
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from flask.testing import FlaskClient

from farm.broker.wake_up import WakeReason, WakeUp
from farm.gang.lifecycle import JobState
from farm.messages.reports import Sample
from farm.store.engine import reading, writing
from farm.store.tables import AgentRow, AttemptRow, JobRow, SweepRow
from tests import factories
from tests.services.redis_server import RedisServer
from tests.stored.histories import BEFORE, SLOWER, add_day
from tests.stored.stored_series import insert_samples
from tests.web.web_client import SWEEP, Seeded, client_of, fitted, seed


@pytest.fixture
def client(engine: sa.Engine) -> FlaskClient:
    return client_of(engine)


@pytest.fixture
def seeded(engine: sa.Engine) -> Seeded:
    return seed(engine)


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path)
    server.start()
    yield server
    server.kill()


def _count(engine: sa.Engine, table: type) -> int:
    with reading(engine) as session:
        return session.scalar(sa.select(sa.func.count()).select_from(table)) or 0


def test_addresses_of_messages_are_kept_apart_and_their_secrets_shown_once(
    client: FlaskClient,
) -> None:
    address = "https://203.0.113.7.example/path"
    refused = client.post("/api/v1/sweeps", json={**SWEEP, "notify": ["http://127.0.0.1/x"]})
    assert (refused.status_code, (refused.json or {}).get("field")) == (422, "notify[0]")
    assert client.get("/api/v1/sweeps").json == {"items": [], "next": None}
    preview = client.post("/api/v1/sweeps/preview", json={**SWEEP, "notify": address})
    assert preview.status_code == 200
    # Of an address that needs no name service.
    answer = client.post("/api/v1/sweeps", json={**SWEEP, "notify": ["https://1.1.1.1/path"]})
    assert answer.status_code == 201
    [target] = (answer.json or {})["notify"]
    assert target["address"] == "https://1.1.1.1/..."
    assert target["secret"].startswith("whsec_")
    found = client.get("/api/v1/sweeps/1").get_data(as_text=True)
    assert "1.1.1.1" not in found


def test_a_posted_sweep_becomes_waiting_jobs_and_says_where_it_is(
    client: FlaskClient, engine: sa.Engine
) -> None:
    answer = client.post("/api/v1/sweeps", json=SWEEP)
    assert answer.status_code == 201
    expected = {"id": 1, "job_count": 2, "max_job_count": 2, "skipped": [], "notify": []}
    assert answer.json == expected
    assert answer.headers["Location"] == "/api/v1/sweeps/1"
    found = client.get(answer.headers["Location"]).json
    assert found is not None
    assert (found["name"], found["state"], found["jobs_by_state"]["waiting"]) == (
        "two cells",
        "waiting",
        2,
    )
    assert found["spec"] == SWEEP
    assert _count(engine, JobRow) == 2


def test_a_sweep_file_is_taken_as_it_is(client: FlaskClient) -> None:
    text = 'name = "t"\n[[case]]\nmodel = "mlp"\ndataset = "digits"\nstrategy = "single"\n'
    text += "world_size = 1\nglobal_batch_size = 32\n"
    answer = client.post("/api/v1/sweeps", data=text, content_type="application/toml")
    assert answer.status_code == 201
    assert answer.json is not None
    assert answer.json["job_count"] == 1


def test_a_refused_sweep_names_the_field_and_writes_nothing(
    client: FlaskClient, engine: sa.Engine
) -> None:
    sweep = json.loads(json.dumps(SWEEP))
    sweep["case"][0]["world_size"] = 0
    answer = client.post("/api/v1/sweeps", json=sweep)
    assert answer.status_code == 422
    assert answer.content_type == "application/problem+json"
    problem = json.loads(answer.data)
    assert problem["field"] == "case[0].world_size"
    assert "got 0" in problem["detail"]
    assert (problem["status"], problem["title"]) == (422, "Unprocessable Entity")
    assert _count(engine, SweepRow) == 0


def test_a_submission_rings_for_the_scheduler(engine: sa.Engine, redis: RedisServer) -> None:
    answer = client_of(engine, FARM_BROKER_URL=redis.url).post("/api/v1/sweeps", json=SWEEP)
    answer.close()
    assert WakeUp(redis.url).wait(5.0) is WakeReason.REQUESTED


def test_a_silent_broker_does_not_keep_an_answer_back(engine: sa.Engine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        client = client_of(engine, FARM_BROKER_URL=f"redis://127.0.0.1:{port}/0")
        answer = client.post("/api/v1/sweeps", json=SWEEP)
        assert answer.status_code == 201
        assert not is_asked(silent)
        answer.close()  # wakes the scheduler, in vain
        assert is_asked(silent)


def is_asked(server: socket.socket) -> bool:
    """Return whether a connection waits to be accepted."""
    return bool(select.select([server], [], [], 0)[0])


def test_sweeps_are_listed_newest_first_in_pages_that_new_ones_do_not_shift(
    client: FlaskClient, engine: sa.Engine
) -> None:
    with writing(engine) as session:
        for n in range(5):
            factories.add_sweep(session, name=f"sweep {n}")
    first = client.get("/api/v1/sweeps?limit=2").json
    assert first is not None
    with writing(engine) as session:
        factories.add_sweep(session, name="a newer one")
    names = [s["name"] for s in first["items"]]
    cursor = first["next"]
    while cursor:
        page = client.get(f"/api/v1/sweeps?limit=2&cursor={cursor}").json
        assert page is not None
        names += [s["name"] for s in page["items"]]
        cursor = page["next"]
    assert names == [f"sweep {n}" for n in (4, 3, 2, 1, 0)]


def test_jobs_are_filtered_by_sweep_and_state_and_paged(
    client: FlaskClient, engine: sa.Engine, seeded: Seeded
) -> None:
    with writing(engine) as session:
        factories.add_sweep(session, name="another")
    failed = client.get(f"/api/v1/jobs?sweep={seeded.sweep_id}&state=failed").json
    assert failed is not None
    assert [j["id"] for j in failed["items"]] == [seeded.failed]
    assert failed["next"] is None
    assert failed["items"][0]["reason"] == "the kernel killed rank 0"
    first = client.get("/api/v1/jobs?limit=3").json
    assert first is not None
    second = client.get(f"/api/v1/jobs?limit=3&cursor={first['next']}").json
    assert second is not None
    ids = [j["id"] for j in first["items"] + second["items"]]
    assert ids == sorted(set(ids))
    assert len(ids) == 6
    assert second["next"] is None


def test_a_job_tells_its_story_its_ranks_and_its_measurement(
    client: FlaskClient, seeded: Seeded
) -> None:
    job = client.get(f"/api/v1/jobs/{seeded.measured}").json
    assert job is not None
    assert job["state"] == "succeeded"
    assert [event["event"] for event in job["story"]] == ["job: waiting"]
    [attempt] = job["attempts"]
    assert [rank["agent_id"] for rank in attempt["ranks"]] == ["a1", "a2"]
    assert attempt["ranks"][0]["ended"]["log_tail"] == "its log"
    assert job["measurement"]["step_time_s"] == 0.2
    assert job["measurement"]["accuracy"] is None  # not measured, and not 0


def test_a_waiting_job_says_why_it_waits(client: FlaskClient, seeded: Seeded) -> None:
    job = client.get(f"/api/v1/jobs/{seeded.waiting}").json
    assert job is not None
    assert "kind" in job["waits_because"]


def test_a_series_keeps_its_holes(client: FlaskClient, seeded: Seeded) -> None:
    series = client.get(f"/api/v1/jobs/{seeded.measured}/series").json
    assert series is not None
    assert [row["rank"] for row in series["samples"]] == [0, 1]
    ticks = [s["tick"] for s in series["samples"][0]["samples"]]
    assert ticks == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    assert [s["step_time_s"] for s in series["steps"]] == [0.1, 0.2, 0.3]
    assert series["epochs"][0]["val_accuracy_ratio"] == 0.9


def test_a_long_series_is_thinned_over_all_ranks_together(
    client: FlaskClient, engine: sa.Engine, seeded: Seeded
) -> None:
    with writing(engine) as session:
        token = session.scalar(sa.select(AttemptRow.id).where(AttemptRow.job_id == seeded.measured))
        assert token is not None
        day = session.get_one(AttemptRow, token).leased_at.date()
        for rank in (0, 1):
            samples = [Sample(tick=tick, cpu_ratio=1.0) for tick in range(10, 5000)]
            insert_samples(session, day=day, token=token, rank=rank, samples=samples)
    series = client.get(f"/api/v1/jobs/{seeded.measured}/series").json
    assert series is not None
    counts = [len(row["samples"]) for row in series["samples"]]
    assert sum(counts) <= 2000
    assert min(counts) > 500


def test_a_job_without_an_attempt_has_an_empty_series(client: FlaskClient, seeded: Seeded) -> None:
    series = client.get(f"/api/v1/jobs/{seeded.waiting}/series").json
    assert series is not None
    assert (series["attempt"], series["samples"]) == (None, [])
    answer = client.get(f"/api/v1/jobs/{seeded.measured}/series?attempt=2")
    assert answer.status_code == 404


def test_cancelling_a_job_or_a_sweep_changes_what_is_not_over(
    client: FlaskClient, engine: sa.Engine, seeded: Seeded
) -> None:
    answer = client.post(f"/api/v1/jobs/{seeded.waiting}/cancel", json={})
    assert answer.json == {"id": seeded.waiting, "changed": True}
    again = client.post(f"/api/v1/jobs/{seeded.waiting}/cancel", json={})
    assert again.json == {"id": seeded.waiting, "changed": False}
    whole = client.post(f"/api/v1/sweeps/{seeded.sweep_id}/cancel", json={})
    assert whole.json == {"id": seeded.sweep_id, "cancelled_count": 1}
    with reading(engine) as session:
        assert session.get_one(JobRow, seeded.waiting).state is JobState.CANCELLED
        assert session.get_one(JobRow, seeded.running).cancel_requested
        assert session.get_one(JobRow, seeded.measured).state is JobState.SUCCEEDED


def test_only_a_failed_or_cancelled_job_is_retried(
    client: FlaskClient, engine: sa.Engine, seeded: Seeded
) -> None:
    assert client.post(f"/api/v1/jobs/{seeded.failed}/retry", json={}).status_code == 200
    with reading(engine) as session:
        assert session.get_one(JobRow, seeded.failed).state is JobState.WAITING
    refused = client.post(f"/api/v1/jobs/{seeded.measured}/retry", json={})
    assert refused.status_code == 409
    assert refused.content_type == "application/problem+json"


def test_agents_say_what_they_serve_and_can_be_drained_and_resumed(
    client: FlaskClient, engine: sa.Engine, seeded: Seeded
) -> None:
    agents = client.get("/api/v1/agents").json
    assert agents is not None
    statuses = {
        a["id"]: (a["status"], a["is_live"], a["job_id"], a["rank"]) for a in agents["items"]
    }
    assert statuses == {
        "a1": ("busy", True, seeded.running, 0),
        "a2": ("idle", True, None, None),
        "gone": ("lost", False, None, None),
    }
    for action, is_drained in (("drain", True), ("resume", False)):
        assert client.post(f"/api/v1/agents/a2/{action}", json={}).status_code == 200
        with reading(engine) as session:
            assert session.get_one(AgentRow, "a2").is_drained is is_drained


def test_measurements_are_filtered_and_paged(client: FlaskClient, seeded: Seeded) -> None:
    def items(query: str) -> list[Any]:
        answer: Any = client.get(f"/api/v1/measurements?{query}").json
        found: list[Any] = answer["items"]
        return found

    of_sweep = client.get(f"/api/v1/measurements?sweep={seeded.sweep_id}").json
    assert of_sweep is not None
    assert [m["job_id"] for m in of_sweep["items"]] == [seeded.measured, seeded.single]
    usual = "pass=forward_backward&one_way_delay_ms=0&batch_split=even"
    assert len(items(usual)) == len(items("")) > 1
    assert items(f"{usual}&learning_rate=0.5") == []
    page = client.get("/api/v1/measurements?limit=1&global_batch_size=64&origin=farm").json
    assert page is not None
    rest = client.get(f"/api/v1/measurements?limit=1&cursor={page['next']}").json
    assert rest is not None
    assert page["items"][0]["id"] < rest["items"][0]["id"]


def test_a_recommendation_rests_on_what_was_measured(client: FlaskClient, seeded: Seeded) -> None:
    answer = client.get("/api/v1/recommendation?global_batch_size=64&model=mlp").json
    assert answer is not None
    assert (answer["recommended"]["world_size"], answer["recommended"]["basis"]) == (2, "measured")
    assert [option["world_size"] for option in answer["options"]] == [2, 1]
    nothing = client.get("/api/v1/recommendation?global_batch_size=7").json
    assert nothing is not None
    assert nothing["recommended"] is None
    assert "7" in nothing["reason"]
    unknown = client.get("/api/v1/recommendation?global_batch_size=64&origin=nowhere")
    assert unknown.status_code == 404


def test_a_delay_is_asked_for_in_milliseconds(client: FlaskClient, engine: sa.Engine) -> None:
    with writing(engine) as session:
        factories.add_measurement(
            session,
            "x",
            world_size=3,
            one_way_delay_s=0.02,
            jitter_s=0.005,
            time_per_epoch_s=1.0,
        )
    query = "global_batch_size=32&one_way_delay_ms=20&jitter_ms=5"
    answer = client.get(f"/api/v1/recommendation?{query}").json
    assert answer is not None
    assert answer["recommended"]["world_size"] == 3


def test_what_was_not_measured_is_predicted_while_the_server_runs(
    client: FlaskClient, engine: sa.Engine
) -> None:
    with writing(engine) as session:
        for number, batch_size in enumerate((16, 32, 64, 128, 256, 512)):
            factories.add_measurement(
                session,
                f"row {number}",
                global_batch_size=batch_size,
                step_time_s=0.001 + 0.001 * batch_size,
            )
    path = "/api/v1/recommendation?global_batch_size=100&epochs=2"
    first = fitted(client, path)
    best = first["recommended"]
    assert (best["basis"], best["epoch_count"]) == ("interpolated", 2)
    assert best["low_s"] < best["time_per_epoch_s"] < best["high_s"]
    assert first["predictor_measurement_count"] == first["measurement_count"] == 6
    with writing(engine) as session:
        now = dt.datetime.now(dt.UTC)
        factories.add_measurement(
            session, "newer", created_at=now, global_batch_size=100, step_time_s=0.2
        )
    second = client.get(path).json
    assert second is not None
    assert second["recommended"]["basis"] == "measured"
    assert second["measurement_count"] == 7


def test_a_training_ends_by_epochs_or_by_accuracy_not_by_both(client: FlaskClient) -> None:
    both = "/api/v1/recommendation?global_batch_size=64&epochs=2&target_accuracy=0.9"
    refused = client.get(both)
    assert refused.status_code == 400
    assert json.loads(refused.data)["field"] == "epochs"


def test_the_server_is_ready_only_with_a_current_schema(
    client: FlaskClient, empty_engine: sa.Engine, engine: sa.Engine
) -> None:
    ready = client.get("/health/ready")
    assert ready.json == {"status": "ready", "database": "ok", "broker": "unreachable"}
    assert client.get("/health/live").json == {"status": "live"}
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = 'older'"))
    late = client.get("/health/ready")
    assert late.status_code == 503
    assert json.loads(late.data)["field"] == "database"
    assert str(empty_engine.url.database) not in late.get_data(as_text=True)


def test_a_broker_that_answers_is_reported(engine: sa.Engine, redis: RedisServer) -> None:
    ready = client_of(engine, FARM_BROKER_URL=redis.url).get("/health/ready").json
    assert ready is not None
    assert ready["broker"] == "ok"


def test_metrics_count_jobs_and_live_agents(client: FlaskClient, seeded: Seeded) -> None:
    text = client.get("/metrics").get_data(as_text=True)
    assert 'farm_jobs{state="failed"} 1\n' in text
    assert 'farm_jobs{state="cancelled"} 0\n' in text
    assert "\nfarm_agents_live 2\n" in text
    assert "\nfarm_late_reports 0\n" in text
    for line in text.splitlines():
        if not line.startswith("#"):
            float(line.rsplit(" ", 1)[1])


def test_the_history_of_a_cell_is_read_in_pages_of_sweeps(
    client: FlaskClient, engine: sa.Engine
) -> None:
    with writing(engine) as session:
        for day, framework in enumerate(("torch 2.13.0", "torch 2.13.1", "torch 2.13.1")):
            add_day(session, day, *(SLOWER if day else BEFORE), framework=framework)
    page = client.get("/api/v1/jobs/1/history?limit=2").json
    assert page is not None
    newest, slower = page["items"]
    assert (newest["verdict"], newest["changes"]) == ("within noise", [])
    assert (slower["verdict"], slower["changes"]) == ("slower", ["torch 2.13.0 -> 2.13.1"])
    assert slower["measured_at"] == "2026-03-02T12:00:00Z"
    assert slower["software"]["torch"] == "2.13.1"
    last = client.get(f"/api/v1/jobs/9/history?cursor={page['next']}").json
    assert last is not None
    assert [point["sweep_id"] for point in last["items"]] == [1]
    assert last["next"] is None
    for query, status in (("limit=0", 400), ("limit=101", 400), ("cursor=x", 400)):
        assert client.get(f"/api/v1/jobs/1/history?{query}").status_code == status
    assert client.get("/api/v1/jobs/99/history").status_code == 404


@pytest.mark.parametrize("name", ["\U000b3829~", "\u0378", "a\u200eb"])
def test_measurements_of_an_odd_name_are_none(client: FlaskClient, name: str) -> None:
    answer = client.get("/api/v1/measurements", query_string={"model": name})
    assert (answer.status_code, answer.json) == (200, {"items": [], "next": None})
