"""The pages on a real store: what people see, and the forms by which they steer."""

from __future__ import annotations

import datetime as dt
import html
import io
import re

import pytest
import sqlalchemy as sa
from flask.testing import FlaskClient

from farm.core.codec import to_json
from farm.core.lifecycle import AttemptState, JobState
from farm.core.reports import PeerBandwidth, Shaped
from farm.core.spec import NetworkProfile
from farm.store.engine import reading, writing
from farm.store.result_tables import MeasurementRow
from farm.store.tables import Agent, Attempt, Job, Rank, Sweep
from tests import factories
from tests.web_client import Seeded, client_of, csrf_of, seed

EVIL = "<script>alert('x')</script>"
TOML = 'name = "from a form"\n[[case]]\nmodel = "mlp"\ndataset = "digits"\nstrategy = "single"\n'
TOML += "world_size = 1\nglobal_batch_size = [32, 64]\n"


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


def _figure(page: str, name: str) -> str:
    return page.split(f"<dt>{name}</dt><dd>", 1)[1].split("<", 1)[0].strip()


def test_an_empty_farm_says_what_to_do_first(client: FlaskClient) -> None:
    text = _text(client, "/")
    assert "No sweep yet" in text
    assert "farm-agent" in text
    assert "Nothing waits" in text


def test_the_example_in_the_form_can_be_enqueued_as_it_is(
    client: FlaskClient, engine: sa.Engine
) -> None:
    page = client.get("/").get_data(as_text=True)
    example = page.split("<textarea", 1)[1].split(">\n", 1)[1].split("</textarea>", 1)[0]
    data = {"sweep": html.unescape(example), "csrf_token": csrf_of(client)}
    answer = client.post("/sweeps", data=data)
    assert (answer.status_code, answer.headers["Location"]) == (303, "/sweeps/1")
    with reading(engine) as session:
        assert session.scalar(sa.select(sa.func.count()).select_from(Job)) == 8
    assert "8 jobs are in the queue" in _text(client, "/sweeps/1")


def test_a_live_agent_shows_what_its_warm_trainers_hold(
    client: FlaskClient, engine: sa.Engine, seeded: Seeded
) -> None:
    with writing(engine) as session:
        for agent_id in ("a1", "gone"):
            session.get_one(Agent, agent_id).template_bytes = 357_000_000
    assert _text(client, "/").count("warm trainers hold 357 MB") == 1
    listed = client.get("/api/v1/agents").json
    assert listed is not None
    assert {a["id"]: a["template_bytes"] for a in listed["items"]} == {
        "a1": 357_000_000,
        "a2": None,
        "gone": 357_000_000,
    }


def test_the_dashboard_shows_agents_the_queue_and_the_sweeps(
    client: FlaskClient, seeded: Seeded
) -> None:
    page = client.get("/").get_data(as_text=True)
    assert _figure(page, "agents live") == "2"
    assert _figure(page, "jobs running") == "1"
    assert _figure(page, "failed") == "1"
    text = _text(client, "/")
    assert f"serves job {seeded.running} , rank 0" in text
    assert "1 core of A CPU, 8.59 GB" in text
    assert "gone lost 1 h ago" in text
    assert "3 of 5 done · 1 running · 1 failed" in text
    assert f"Job {seeded.waiting} mlp on digits, single, batch 128, 1 agent" in text
    assert "kind" in text.split("Next in the queue")[1].split("Agents")[0]


def test_what_users_wrote_is_shown_and_never_run(client: FlaskClient, seeded: Seeded) -> None:
    for path in ("/", f"/sweeps/{seeded.sweep_id}", f"/jobs/{seeded.measured}"):
        page = client.get(path).get_data(as_text=True)
        assert EVIL not in page
        assert html.escape(EVIL, quote=False)[:14] in page


def test_pages_need_nothing_that_their_policy_forbids(client: FlaskClient, seeded: Seeded) -> None:
    for path in ("/", f"/sweeps/{seeded.sweep_id}", f"/jobs/{seeded.measured}", "/nothing"):
        page = client.get(path).get_data(as_text=True)
        assert "style=" not in page
        assert not re.search(r"<script(?! src=\"/static/)", page)
        assert not re.search(r"<[^>]* on[a-z]+=", page)
        assert "http://" not in page
        assert "https://" not in page


def test_ids_in_a_page_are_unique(client: FlaskClient, seeded: Seeded) -> None:
    for path in ("/", f"/sweeps/{seeded.sweep_id}", f"/jobs/{seeded.measured}"):
        ids = re.findall(r' id="([^"]*)"', client.get(path).get_data(as_text=True))
        assert len(ids) == len(set(ids))


def test_a_sweep_shows_what_it_measured_and_what_failed(
    client: FlaskClient, seeded: Seeded
) -> None:
    text = _text(client, f"/sweeps/{seeded.sweep_id}")
    assert "200 ms 150 to 250" in text
    assert "320 100 % 50 %" in text  # examples/s, efficiency against one machine, CPU
    assert "out of memory: the kernel killed rank 0" in text
    assert "Batch 64 2 machines mwms_ring, 4.60 s an epoch 2.00 times as fast as 1 machine" in text


def test_a_job_shows_its_ranks_its_charts_and_its_log(client: FlaskClient, seeded: Seeded) -> None:
    page = client.get(f"/jobs/{seeded.measured}").get_data(as_text=True)
    assert page.count('<svg class="chart" viewBox="0 0 360') == 3
    assert page.count("Not measured.") == 2  # memory and sent bytes
    cpu = page.split("CPU of the trainers</figcaption>", 1)[1].split("</figure>", 1)[0]
    # Two ranks, each with a hole at tick 5.
    assert cpu.count("<polyline") == 4
    text = _text(client, f"/jobs/{seeded.measured}")
    assert "Attempt 1 succeeded" in text
    assert "Rank 0 on a1" in text
    failed = _text(client, f"/jobs/{seeded.failed}")
    assert "out of memory: the kernel killed rank 0" in failed
    assert "no more memory" in failed


def test_a_limited_bandwidth_is_shown_beside_what_was_measured(
    client: FlaskClient, engine: sa.Engine, seeded: Seeded
) -> None:
    path = f"/jobs/{seeded.measured}"
    assert "Bandwidth as shaped" not in _text(client, path)
    network = NetworkProfile(bandwidth_bytes_per_s=1.25e6)
    with writing(engine) as session:
        job = session.get_one(Job, seeded.measured)
        job.spec = to_json(factories.job_spec(world_size=2, network=network))  # type: ignore[assignment] # a table
        for rank in session.scalars(sa.select(Rank).where(Rank.attempt_id == 1)):
            carried = PeerBandwidth(
                rank=1 - rank.rank, bytes_per_s=(1.2 + rank.rank / 100) * 1e6, byte_count=1
            )
            rank.shaped = to_json(Shaped(emulator="tc_netem", rtts=(), bandwidths=(carried,)))  # type: ignore[assignment] # a table
        session.execute(
            sa.update(MeasurementRow)
            .where(MeasurementRow.job_id == seeded.measured)
            .values(measured_bandwidth_bytes_per_s=1.2e6)
        )
    text = _text(client, path)
    assert "0 s one way, 10.0 Mbit/s" in text
    assert "bandwidth as shaped 9.60 Mbit/s" in text
    assert "Bandwidth as shaped" in text
    assert "9.68 Mbit/s" in text


def test_the_page_of_a_waiting_job_says_why(client: FlaskClient, seeded: Seeded) -> None:
    text = _text(client, f"/jobs/{seeded.waiting}")
    assert "Waiting:" in text
    assert "kind" in text.split("Waiting:")[1][:120]


def test_a_refused_sweep_stays_in_the_form_with_the_reason(
    client: FlaskClient, engine: sa.Engine
) -> None:
    sweep = TOML.replace("[32, 64]", "-5") + "# </textarea>" + EVIL
    data = {"sweep": sweep, "csrf_token": csrf_of(client)}
    answer = client.post("/sweeps", data=data)
    page = answer.get_data(as_text=True)
    assert answer.status_code == 422
    assert "case[0].global_batch_size: expected a whole number" in html.unescape(page)
    assert html.unescape(page.split("<textarea", 1)[1]).count("from a form") == 1
    assert EVIL not in page
    assert 'data-address="/"' in page  # where its script looks for news: /sweeps is only posted to
    with reading(engine) as session:
        assert session.scalar(sa.select(sa.func.count()).select_from(Sweep)) == 0


@pytest.mark.parametrize(
    ("text", "expected"), [("", "case"), ("name = ", "TOML"), ("x = 1", "x"), ("\x00", "TOML")]
)
def test_text_that_is_no_sweep_is_answered_in_one_line(
    client: FlaskClient, text: str, expected: str
) -> None:
    answer = client.post("/sweeps", data={"sweep": text, "csrf_token": csrf_of(client)})
    assert 400 <= answer.status_code < 500
    notice = answer.get_data(as_text=True).split('role="alert">', 1)[1].split("</p>", 1)[0]
    assert expected in notice
    assert "\n" not in notice


def test_an_uploaded_file_goes_before_the_text(client: FlaskClient, engine: sa.Engine) -> None:
    data = {
        "sweep": "nonsense",
        "csrf_token": csrf_of(client),
        "file": (io.BytesIO(TOML.encode()), "../../sweep.toml"),
    }
    answer = client.post("/sweeps", data=data, content_type="multipart/form-data")
    assert answer.status_code == 303
    with reading(engine) as session:
        assert session.scalar(sa.select(Sweep.name)) == "from a form"


def test_an_uploaded_file_that_is_no_text_is_refused(client: FlaskClient) -> None:
    data = {"csrf_token": csrf_of(client), "file": (io.BytesIO(b"\xff\xd8\xff"), "a.jpg")}
    answer = client.post("/sweeps", data=data, content_type="multipart/form-data")
    assert answer.status_code == 422
    assert "file: expected a TOML file" in html.unescape(answer.get_data(as_text=True))


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
        states = {job.id: job.state for job in session.scalars(sa.select(Job))}
        assert session.get_one(Agent, "a2").is_drained
    assert states[seeded.failed] is JobState.CANCELLED
    assert states[seeded.waiting] is JobState.CANCELLED
    assert states[seeded.measured] is JobState.SUCCEEDED
    client.post(f"/sweeps/{seeded.sweep_id}/retry", data=form)
    client.post(f"/jobs/{seeded.waiting}/cancel", data=form)
    client.post("/agents/a2/resume", data=form)
    with reading(engine) as session:
        assert session.get_one(Job, seeded.failed).state is JobState.WAITING
        assert session.get_one(Job, seeded.waiting).state is JobState.CANCELLED
        assert not session.get_one(Agent, "a2").is_drained


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
        specs = [factories.job_spec(repetition=n) for n in range(450)]
        job_ids = factories.add_sweep(session, *specs)
    shown: list[str] = []
    for page in (1, 2, 3):
        text = client.get(f"/sweeps/1?page={page}").get_data(as_text=True)
        shown += re.findall(r'id="job-(\d+)"', text)
    assert sorted(map(int, shown)) == job_ids
    assert "page 1 of 3" in _text(client, "/sweeps/1")
    assert client.get("/sweeps/1?page=0").status_code == 400


def test_old_sweeps_are_reached_from_the_dashboard(client: FlaskClient, engine: sa.Engine) -> None:
    with writing(engine) as session:
        for n in range(25):
            factories.add_sweep(session, name=f"number {n}")
    path, seen = "/", []
    for _ in range(3):
        page = client.get(path).get_data(as_text=True)
        seen += re.findall(r"number (\d+)", page)
        path = next(iter(re.findall(r'href="(/\?before=\d+)"', page)), "/")
    assert [int(n) for n in seen] == list(range(24, -1, -1))


def test_a_sweep_says_about_how_long_it_will_take(client: FlaskClient, engine: sa.Engine) -> None:
    now = dt.datetime.now(dt.UTC)
    with writing(engine) as session:
        for agent_id in ("a1", "a2"):
            factories.add_agent(session, agent_id, heartbeat_at=now)
        done, *_ = factories.add_sweep(session, *(factories.job_spec(seed=n) for n in range(7)))
        token = factories.add_attempt(session, done, ["a1"], state=AttemptState.SUCCEEDED)
        attempt = session.get_one(Attempt, token)
        attempt.ended_at = attempt.leased_at + dt.timedelta(seconds=20)
    # Six jobs of 20 s are left for two agents.
    for path in ("/", "/sweeps/1"):
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


def test_a_large_farm_shows_its_first_agents(client: FlaskClient, engine: sa.Engine) -> None:
    with writing(engine) as session:
        for n in range(101):
            factories.add_agent(session, f"agent-{n:03}", heartbeat_at=dt.datetime.now(dt.UTC))
    text = _text(client, "/")
    assert "agents live 101 " in text
    assert "agent-099" in text
    assert "agent-100" not in text
    assert "/api/v1/agents lists all" in text
