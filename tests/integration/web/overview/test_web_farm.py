"""The farm as people see it: its agents, its queue and its sweeps."""

from __future__ import annotations

import datetime as dt
import html
import json
import re

import pytest
import sqlalchemy as sa
from flask.testing import FlaskClient
from sqlalchemy.orm import Session

from farm.configuration.spec import TENSORFLOW
from farm.gang.lifecycle import AttemptState, JobState
from farm.messages.agents import AgentState, Hardware
from farm.store.engine import writing
from farm.store.sweeps.sweeps import pause_sweep
from farm.store.tables import AgentRow, AttemptRow, JobRow
from tests import factories
from tests.facts import lacking
from tests.web.web_client import Seeded, client_of, seed
from tests.web.web_reading import figure_of, page_of, part_of, read


@pytest.fixture
def client(engine: sa.Engine) -> FlaskClient:
    return client_of(engine)


@pytest.fixture
def seeded(engine: sa.Engine) -> Seeded:
    return seed(engine)


def _row(page: str, agent_id: str) -> str:
    """Return what is read of an agent's line in the table."""
    return read("<td " + page.split(f'id="agent-{agent_id}"', 1)[1].split("</tr>", 1)[0])


def _finish(session: Session, job_id: int, *, duration_s: float = 20.0) -> None:
    """Let a job have been measured this very moment."""
    token = factories.add_attempt(session, job_id, state=AttemptState.SUCCEEDED)
    attempt = session.get_one(AttemptRow, token)
    attempt.ended_at = attempt.leased_at + factories.seconds(duration_s)
    session.get_one(JobRow, job_id).finished_at = dt.datetime.now(dt.UTC)


def test_a_sweep_of_which_only_what_nobody_can_serve_is_left_says_what_it_waits_for(
    client: FlaskClient, engine: sa.Engine
) -> None:
    with writing(engine) as session:
        factories.add_agent(session, "a1", heartbeat_at=dt.datetime.now(dt.UTC))
        done, _, narrow = factories.add_sweep(
            session,
            factories.job_spec(),
            factories.job_spec(strategy="mwms_ring", world_size=4),
            factories.job_spec(seed=2),
        )
        _finish(session, done)
        for job_id in (done, narrow):
            session.get_one(JobRow, job_id).state = JobState.SUCCEEDED
    for address in ("/", "/sweeps", "/sweeps/1"):
        page = read(part_of(page_of(client, address), "main"))
        assert "waits for agents" in page
        assert "needs 4 agents; the farm has 1" in page
        assert "left" not in page
    with writing(engine) as session:
        session.get_one(JobRow, narrow).state = JobState.WAITING
    for address in ("/", "/sweeps", "/sweeps/1"):
        assert "waits for agents" not in read(page_of(client, address))


def test_an_empty_farm_says_what_to_do_first(client: FlaskClient) -> None:
    text = read(page_of(client, "/"))
    assert "No sweep yet. Enqueue the first one" in text
    assert "farm-agent" in text
    assert "No job waits." in text
    assert "until all are done" not in text
    assert "No sweep yet" in read(page_of(client, "/sweeps"))


def test_the_first_page_sums_up_the_farm(client: FlaskClient, seeded: Seeded) -> None:
    page = page_of(client, "/")
    assert figure_of(page, "agents live") == "2"
    assert "2 of 3" in read(page.split('id="figures"', 1)[1])
    assert figure_of(page, "jobs running") == "1"
    assert figure_of(page, "waiting") == "1"
    assert figure_of(page, "failed") == "1"
    assert "3 of 5 done · 1 running · 1 failed" in part_of(page, "sweeps")
    queue = part_of(page, "queue")
    words = ("mlp", "digits", "single", "batch 128", "1 agent")
    assert lacking(queue, f"Job {seeded.waiting}", *words) == []
    assert "labels kind=rare: no agent · has waited" in queue
    assert "data-busy" in page


def test_an_agent_is_shown_with_all_that_one_looks_for(
    client: FlaskClient, engine: sa.Engine, seeded: Seeded
) -> None:
    hardware = Hardware(
        cpu_model="Big CPU",
        core_count=4,
        memory_bytes=16_000_000_000,
        accelerators=("A GPU",),
        kernel="6.1.0",
        tensorflow_version="2.21.0",
        python_version="3.11.7",
        benchfarm_version="0.1.0",
    )
    facts = factories.agent_facts(
        hardware=hardware,
        capabilities=("network", "tc_netem", TENSORFLOW, "torch:2.13.0"),
        labels={"zone": "a"},
    )
    now = dt.datetime.now(dt.UTC)
    with writing(engine) as session:
        factories.add_agent(session, "big", facts=facts, heartbeat_at=now, clock_offset_s=-0.012)
        session.get_one(AgentRow, "a1").clock_offset_s = 3.0
        session.get_one(AgentRow, "a1").is_drained = True
        for agent_id in ("big", "gone"):
            session.get_one(AgentRow, agent_id).template_bytes = 357_000_000
    page = page_of(client, "/")
    big = _row(page, "big")
    assert "big idle" in big
    assert lacking(big, "4 cores of Big CPU", "16.0 GB", "A GPU", "zone=a", "357 MB") == []
    assert lacking(big, "TensorFlow 2.21.0, PyTorch 2.13.0", "network", "tc_netem") == []
    assert "\N{MINUS SIGN}12.0 ms" in big
    busy = _row(page, "a1")
    assert f"busy drained job {seeded.running} , rank 0" in busy
    assert "+3.00 s" in busy
    assert page.count("is-off") == 1
    assert f'href="/jobs/{seeded.running}">job' in page
    gone = _row(page, "gone")
    assert "lost" in gone
    assert "1 h ago" in gone
    assert "warm trainers" not in gone
    assert 'id="drain-big"' in page
    assert 'id="drain-gone"' not in page


def test_agents_are_sorted_and_come_in_pages(client: FlaskClient, engine: sa.Engine) -> None:
    now = dt.datetime.now(dt.UTC)
    with writing(engine) as session:
        for n in range(51):
            factories.add_agent(session, f"n{n:03}", heartbeat_at=now, clock_offset_s=n / 1000)
        factories.add_agent(session, "a-lost", heartbeat_at=now - dt.timedelta(hours=1))

    def shown(path: str) -> list[str]:
        return re.findall(r'id="agent-([^"]*)"', page_of(client, path))

    first, second = shown("/"), shown("/?agents=2")
    assert (first[0], first[-1], len(first)) == ("n000", "n049", 50)
    assert second == ["n050", "a-lost"]
    assert shown("/?sort=clock")[0] == "n050"
    assert shown("/?sort=heartbeat")[0] == "a-lost"
    assert shown("/?sort=clock&agents=2") == ["n000", "a-lost"]
    page = page_of(client, "/?sort=clock&agents=2")
    assert "page 2 of 2, 52 agents" in part_of(page, "agents")
    assert 'id="sort-clock" href="/?sort=clock#agents" aria-current="true"' in page
    assert "no more than 52 agents" in part_of(page_of(client, "/?agents=9"), "agents")
    for bad in ("/?sort=color", "/?agents=0", "/?agents=x", "/?before=3"):
        assert client.get(bad).status_code == 400


def _add_agent_at_work(session: Session, *, now: dt.datetime) -> None:
    factories.add_agent(session, "a1", heartbeat_at=now, state=AgentState.BUSY)
    running = factories.add_job(session, factories.job_spec(seed=7))
    factories.add_attempt(session, running, ["a1"], state=AttemptState.RUNNING)


def test_jobs_that_nobody_can_serve_do_not_fill_the_queue_shown(
    client: FlaskClient, engine: sa.Engine
) -> None:
    with writing(engine) as session:
        now = dt.datetime.now(dt.UTC)
        _add_agent_at_work(session, now=now)
        wide = [factories.job_spec(seed=n, world_size=2) for n in range(30)]
        first, *_ = factories.add_sweep(session, *wide)
        behind = factories.add_job(session)
    page = page_of(client, "/")
    assert [int(found) for found in re.findall(r'id="waiting-(\d+)"', page)] == [first, behind]
    assert "so do 29 more of its sweep" in page
    assert "and 29 more" not in page
    story = client.get(f"/api/v1/jobs/{behind}").json
    assert story is not None
    assert story["waits_because"] == "waits for 1 more idle agent (0 of 1)"


def test_the_queue_counts_agents_and_not_their_ranks(
    client: FlaskClient, engine: sa.Engine
) -> None:
    with writing(engine) as session:
        _add_agent_at_work(session, now=dt.datetime.now(dt.UTC))
        several = factories.job_spec(world_size=4, axes={"ranks_per_agent": 2})
        factories.add_job(session, several)
    queue = part_of(page_of(client, "/"), "queue")
    assert "mwms_ring, batch 32, 2 agents" in queue


def test_the_queue_says_what_is_next_why_it_waits_and_how_much_there_is(
    client: FlaskClient, engine: sa.Engine
) -> None:
    now = dt.datetime.now(dt.UTC)
    with writing(engine) as session:
        _add_agent_at_work(session, now=now)
        jobs = factories.add_sweep(session, *(factories.job_spec(seed=n) for n in range(10)))
        factories.add_sweep(session, factories.job_spec(world_size=2))
        urgent = factories.add_job(session, factories.job_spec(seed=99), priority=5)
        [held, *_] = factories.add_sweep(session, *(factories.job_spec(seed=n) for n in range(3)))
        pause_sweep(session, session.get_one(JobRow, held).sweep_id)
        pausing = session.get_one(JobRow, jobs[0])
        pausing.due_at, pausing.attempt_count = now + dt.timedelta(seconds=250), 9
    page = page_of(client, "/")
    shown = [int(found) for found in re.findall(r'id="waiting-(\d+)"', page)]
    assert shown == [urgent, *jobs[1:8]]
    queue = part_of(page, "queue")
    words = ("mlp", "digits", "single", "batch 32", "1 agent")
    assert lacking(queue, f"Job {urgent}", *words, "1 more idle agent", "priority 5") == []
    assert lacking(queue, "7 more", "3 of them") == []
    assert "The time until all jobs are done is not known yet." in queue
    assert "3 jobs of sweeps that are paused or over budget are not included." in queue
    assert "1 job needs more agents than are live" in queue
    assert figure_of(page, "waiting") == "15"


def test_the_queue_says_when_it_will_be_done(client: FlaskClient, engine: sa.Engine) -> None:
    now = dt.datetime.now(dt.UTC)
    with writing(engine) as session:
        for agent_id in ("a1", "a2"):
            factories.add_agent(session, agent_id, heartbeat_at=now)
        done, *_ = factories.add_sweep(session, *(factories.job_spec(seed=n) for n in range(7)))
        _finish(session, done, duration_s=20.0)
        # Nothing of this one has finished, so it goes by the other.
        factories.add_sweep(session, *(factories.job_spec(seed=n) for n in range(2)))
    page = page_of(client, "/")
    assert figure_of(page, "until all are done") == "80 s"
    assert lacking(part_of(page, "queue"), "80 s", "all 2 live agents") == []
    assert figure_of(page, "done in the last hour") == "1"


def test_throughput_is_drawn_once_there_is_more_than_one_hour(
    client: FlaskClient, engine: sa.Engine
) -> None:
    now = dt.datetime.now(dt.UTC)
    with writing(engine) as session:
        jobs = factories.add_sweep(session, *(factories.job_spec(seed=n) for n in range(4)))
        _finish(session, jobs[0])
    assert "Jobs finished in an hour" not in page_of(client, "/")
    with writing(engine) as session:
        for job_id in jobs[1:]:
            _finish(session, job_id)
            session.get_one(JobRow, job_id).finished_at = now - dt.timedelta(minutes=150)
        session.get_one(JobRow, jobs[3]).state = JobState.FAILED
    page = page_of(client, "/")
    assert lacking(page, "from 0 to 3", "last 3 hours", "1 in the last one") == []
    chart = page.split('id="throughput"', 1)[1].split("</figure>", 1)[0]
    assert "of them failed" in read(chart)
    data = json.loads(chart.split('<script type="application/json">')[1].split("</script>")[0])
    assert [len(trace["x"]) for trace in data["data"]] == [3, 3]


def test_sweeps_are_listed_newest_first_in_pages(client: FlaskClient, engine: sa.Engine) -> None:
    with writing(engine) as session:
        for n in range(60):
            factories.add_sweep(session, name=f"number {n}")
    path, seen, pages = "/sweeps", [], 0
    while path:
        page = page_of(client, path)
        seen += re.findall(r"number (\d+)", page)
        pages += 1
        older = re.findall(r'id="older" href="([^"]*)"', page)
        path = html.unescape(older[0]) if older else ""
    assert [int(n) for n in seen] == list(range(59, -1, -1))
    assert pages == 3
    first = page_of(client, "/")
    assert re.findall(r"number (\d+)", first) == ["59", "58", "57", "56", "55"]
    assert 'href="/sweeps?before=56"' in first
    assert "There are no older ones." in read(page_of(client, "/sweeps?before=1"))


def test_sweeps_are_found_by_what_they_are(client: FlaskClient, engine: sa.Engine) -> None:
    with writing(engine) as session:
        for name in ("waits", "runs", "is over", "is held"):
            jobs = factories.add_sweep(
                session, *(factories.job_spec(seed=n) for n in range(2)), name=name
            )
            if name in ("runs", "is over"):
                _finish(session, jobs[0])
            if name == "is over":
                _finish(session, jobs[1])
            if name == "is held":
                pause_sweep(session, session.get_one(JobRow, jobs[0]).sweep_id)
    for status, name in (
        ("waiting", "waits"),
        ("running", "runs"),
        ("finished", "is over"),
        ("paused", "is held"),
    ):
        page = page_of(client, f"/sweeps?status={status}")
        assert re.findall(r"<strong>(waits|runs|is over|is held)</strong>", page) == [name]
        assert f'id="status-{status}" href="/sweeps?status={status}" aria-current="true"' in page
        assert ("data-busy" in page) is (status in ("waiting", "running"))
    assert "is held paused" in part_of(page_of(client, "/sweeps"), "list")
    with writing(engine) as session:
        session.execute(sa.update(JobRow).values(state=JobState.CANCELLED, attempt_id=None))
    assert "No sweep is paused." in read(page_of(client, "/sweeps?status=paused"))
    for bad in ("/sweeps?status=lost", "/sweeps?before=x", "/sweeps?page=2"):
        assert client.get(bad).status_code == 400


def test_a_paused_sweep_says_so_and_what_it_would_take(
    client: FlaskClient, engine: sa.Engine
) -> None:
    now = dt.datetime.now(dt.UTC)
    with writing(engine) as session:
        factories.add_agent(session, "a1", heartbeat_at=now)
        done, *_ = factories.add_sweep(session, *(factories.job_spec(seed=n) for n in range(3)))
        _finish(session, done, duration_s=20.0)
        pause_sweep(session, 1)
    for path in ("/", "/sweeps", "/sweeps/1"):
        text = read(page_of(client, path))
        assert " paused " in text
        assert "1 of 3 done · about 40 s once it goes on" in text
    page = page_of(client, "/")
    assert "until all are done" not in page
    assert lacking(part_of(page, "queue"), "No job waits", "2 waiting", "2 of them") == []
    assert "data-busy" not in page


@pytest.mark.parametrize(
    ("path", "name", "current"),
    [
        ("/", "Farm", "page"),
        ("/agents/a1", "Farm", "true"),
        ("/sweeps", "Sweeps", "page"),
        ("/sweeps/1", "Sweeps", "true"),
        ("/jobs/1", "Sweeps", "true"),
        ("/sweeps/new", "New sweep", "page"),
        ("/advice", "Advice", "page"),
        ("/data", "Data", "page"),
    ],
)
def test_the_navigation_says_where_one_is(
    client: FlaskClient, seeded: Seeded, path: str, name: str, current: str
) -> None:
    nav = page_of(client, path).split('<nav aria-label="Main">', 1)[1].split("</nav>", 1)[0]
    assert re.findall(r'aria-current="(\w+)">([^<]*)</a>', nav) == [(current, name)]
    links = re.findall(r'<a href="([^"]*)"', nav)
    assert links == ["/", "/sweeps", "/sweeps/new", "/advice", "/data"]
