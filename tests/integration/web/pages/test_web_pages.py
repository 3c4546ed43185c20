"""The pages on a real store: what people see, and the forms by which they steer."""

from __future__ import annotations

import datetime as dt
import html
import re
import time

import jinja2
import pytest
import sqlalchemy as sa
from flask.testing import FlaskClient

from farm.gang.lifecycle import AttemptState, JobState
from farm.store.engine import reading, writing
from farm.store.result_tables import MeasurementRow
from farm.store.tables import AgentRow, AttemptRow, JobRow
from tests import factories
from tests.services.redis_server import RedisServer
from tests.web.web_client import Seeded, client_of, csrf_of, seed

EVIL = "<script>alert('x')</script>"


@pytest.fixture
def client(engine: sa.Engine) -> FlaskClient:
    return client_of(engine)


@pytest.fixture
def seeded(engine: sa.Engine) -> Seeded:
    return seed(engine, name=EVIL, log_tail=EVIL)


def _text(client: FlaskClient, path: str) -> str:
    """Return what is read of a page: without tags, spaces folded."""
    answer = client.get(path)
    assert answer.status_code == 200
    page = re.sub(r"<[^>]*>", " ", answer.get_data(as_text=True))
    return " ".join(html.unescape(page).split())


def _pages(seeded: Seeded) -> list[str]:
    """Those of which all that is asked for holds of every page; each shows the sweep's name."""
    return [
        "/",
        "/sweeps",
        "/agents/a1",
        f"/sweeps/{seeded.sweep_id}",
        f"/jobs/{seeded.measured}",
    ]


def test_what_users_wrote_is_shown_and_never_run(client: FlaskClient, seeded: Seeded) -> None:
    for path in _pages(seeded):
        page = client.get(path).get_data(as_text=True)
        assert EVIL not in page
        assert html.escape(EVIL, quote=False)[:14] in page


def test_pages_need_nothing_that_their_policy_forbids(client: FlaskClient, seeded: Seeded) -> None:
    for path in (*_pages(seeded), "/nothing"):
        page = client.get(path).get_data(as_text=True)
        assert "style=" not in page
        assert not re.search(r"<script(?! src=\"/static/| type=\"application/json\">)", page)
        assert not re.search(r"<[^>]* on[a-z]+=", page)
        assert "http://" not in page
        assert "https://" not in page


def test_a_name_that_a_template_misspells_is_an_error(client: FlaskClient) -> None:
    template = client.application.jinja_env.from_string("{{ job.stat }}")
    with pytest.raises(jinja2.UndefinedError):
        template.render(job={"state": "queued"})


def test_ids_in_a_page_are_unique(client: FlaskClient, seeded: Seeded) -> None:
    for path in _pages(seeded):
        ids = re.findall(r' id="([^"]*)"', client.get(path).get_data(as_text=True))
        assert len(ids) == len(set(ids))


def test_a_sweep_shows_what_it_measured_and_what_failed(
    client: FlaskClient, seeded: Seeded
) -> None:
    text = _text(client, f"/sweeps/{seeded.sweep_id}")
    assert "200 ms 150 to 250" in text
    assert "320 4.60 s 50 %" in text  # examples/s, time per epoch, CPU
    assert "50 % 100 %" in text  # CPU, efficiency against one machine
    assert "out of memory: the kernel killed rank 0" in text
    assert "Batch 64 2 machines mwms_ring, 4.60 s an epoch 2.00 times as fast as 1 machine" in text


def test_a_failed_job_says_why_and_shows_what_its_trainer_wrote_last(
    client: FlaskClient, seeded: Seeded
) -> None:
    text = _text(client, f"/jobs/{seeded.failed}")
    assert "out of memory: the kernel killed rank 0" in text
    assert "no more memory" in text


def test_the_page_of_a_waiting_job_says_why(client: FlaskClient, seeded: Seeded) -> None:
    text = _text(client, f"/jobs/{seeded.waiting}")
    assert "Waiting:" in text
    assert "kind" in text.split("Waiting:")[1][:120]


def test_pages_say_of_a_job_that_could_start_that_no_scheduler_works(
    engine: sa.Engine, broker: RedisServer
) -> None:
    with writing(engine) as session:
        factories.add_agent(session, heartbeat_at=dt.datetime.now(dt.UTC))
        job_id = factories.add_job(session)
        sweep_id = session.get_one(JobRow, job_id).sweep_id
    with_broker = client_of(engine, FARM_BROKER_URL=broker.url)
    assert "about to start" not in _text(with_broker, "/")
    assert "Waiting: no scheduler runs: `farm doctor`" in _text(with_broker, f"/jobs/{job_id}")
    without, reason = client_of(engine), "the broker does not answer: `farm doctor` says more"
    for path in ("/", f"/sweeps/{sweep_id}", f"/jobs/{job_id}"):
        assert reason in _text(without, path)
    job = without.get(f"/api/v1/jobs/{job_id}").get_json()
    assert job["waits_because"] == reason


def test_jobs_sweeps_and_agents_are_steered_by_forms(
    client: FlaskClient, engine: sa.Engine, seeded: Seeded
) -> None:
    form = {"csrf_token": csrf_of(client)}
    for path in (
        f"/jobs/{seeded.failed}/retry",
        f"/sweeps/{seeded.sweep_id}/cancel",
        "/agents/a2/drain",
    ):
        assert client.post(path, data=form).status_code == 303
    with reading(engine) as session:
        states = {job.id: job.state for job in session.scalars(sa.select(JobRow))}
        assert session.get_one(AgentRow, "a2").is_drained
    assert states[seeded.failed] is JobState.CANCELLED
    assert states[seeded.waiting] is JobState.CANCELLED
    assert states[seeded.measured] is JobState.SUCCEEDED
    client.post(f"/sweeps/{seeded.sweep_id}/retry", data=form)
    client.post(f"/jobs/{seeded.waiting}/cancel", data=form)
    client.post("/agents/a2/resume", data=form)
    with reading(engine) as session:
        assert session.get_one(JobRow, seeded.failed).state is JobState.WAITING
        assert session.get_one(JobRow, seeded.waiting).state is JobState.CANCELLED
        assert not session.get_one(AgentRow, "a2").is_drained


def test_a_success_is_not_retried(client: FlaskClient, seeded: Seeded) -> None:
    answer = client.post(f"/jobs/{seeded.measured}/retry", data={"csrf_token": csrf_of(client)})
    assert answer.status_code == 409
    assert answer.content_type.startswith("text/html")


def test_a_page_refreshes_itself_only_while_something_may_change(
    client: FlaskClient, engine: sa.Engine, seeded: Seeded
) -> None:
    path = f"/sweeps/{seeded.sweep_id}"
    assert "data-busy" in client.get(path).get_data(as_text=True)
    assert 'http-equiv="refresh"' in client.get(path).get_data(as_text=True)
    done = client.get(f"/jobs/{seeded.measured}").get_data(as_text=True)
    assert "data-busy" not in done
    assert 'http-equiv="refresh"' not in done


def test_a_sweep_of_many_jobs_comes_in_pages(client: FlaskClient, engine: sa.Engine) -> None:
    with writing(engine) as session:
        specs = [factories.job_spec(repetition=n) for n in range(225)]
        job_ids = factories.add_sweep(session, *specs)
    shown: list[str] = []
    for page in range(1, 6):
        text = client.get(f"/sweeps/1?page={page}").get_data(as_text=True)
        shown += re.findall(r'id="job-(\d+)"', text)
    assert sorted(map(int, shown)) == job_ids
    assert "page 1 of 5" in _text(client, "/sweeps/1?page=1")
    # Until somebody asks for them, the cells say it shorter.
    assert "225 jobs, one line each" in _text(client, "/sweeps/1")
    assert client.get("/sweeps/1?page=0").status_code == 400


def test_a_sweep_says_about_how_long_it_will_take(client: FlaskClient, engine: sa.Engine) -> None:
    now = dt.datetime.now(dt.UTC)
    with writing(engine) as session:
        for agent_id in ("a1", "a2"):
            factories.add_agent(session, agent_id, heartbeat_at=now)
        done, *_ = factories.add_sweep(session, *(factories.job_spec(seed=n) for n in range(7)))
        token = factories.add_attempt(session, done, ["a1"], state=AttemptState.SUCCEEDED)
        attempt = session.get_one(AttemptRow, token)
        attempt.ended_at = attempt.leased_at + dt.timedelta(seconds=20)
    # Six jobs of 20 s are left for two agents.
    for path in ("/", "/sweeps", "/sweeps/1"):
        assert "1 of 7 done · about 60 s left" in _text(client, path)
    sweep = client.get("/api/v1/sweeps/1").json
    assert sweep is not None
    assert sweep["remaining_s"] == 60.0


def test_a_new_measurement_changes_the_recommendation(
    client: FlaskClient, engine: sa.Engine, seeded: Seeded
) -> None:
    path = f"/sweeps/{seeded.sweep_id}"
    assert "Batch 64 2 machines" in _text(client, path)
    with writing(engine) as session:
        row = session.scalar(
            sa.select(MeasurementRow).where(MeasurementRow.job_id == seeded.single)
        )
        assert row is not None
        session.delete(row)
        session.flush()
        factories.add_measurement(
            session,
            f"job {seeded.single}",
            job_id=seeded.single,
            created_at=dt.datetime.now(dt.UTC),
            global_batch_size=64,
            step_time_s=0.01,
            time_per_epoch_s=0.2,
            fingerprint="a kind",
        )
    assert "Batch 64 1 machine single" in _text(client, path)


@pytest.mark.parametrize("path", ["/", "/health/live", "/no/such/page", "/sweeps/1?page=0"])
def test_every_answer_tells_how_long_the_server_took(client: FlaskClient, path: str) -> None:
    begun_s = time.perf_counter()
    header = client.get(path).headers["Server-Timing"]
    took_ms = (time.perf_counter() - begun_s) * 1000
    found = re.fullmatch(r"total;dur=(\d+\.\d)", header)
    assert found is not None
    assert 0 <= float(found[1]) <= took_ms
