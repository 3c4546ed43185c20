"""One agent as people see it: what it is, what it served, and whether it drifts."""

from __future__ import annotations

import dataclasses
import datetime as dt
import re

import pytest
import sqlalchemy as sa
from flask.testing import FlaskClient

from farm.configuration.spec import TENSORFLOW
from farm.gang.lifecycle import AttemptState
from farm.store.engine import reading, writing
from farm.store.tables import AgentRow, AttemptRow, RankRow
from tests import factories
from tests.web.web_client import Seeded, client_of, csrf_of, seed
from tests.web.web_reading import page_of, part_of, read

EVIL = "<script>alert('x')</script>"


@pytest.fixture
def client(engine: sa.Engine) -> FlaskClient:
    return client_of(engine)


@pytest.fixture
def seeded(engine: sa.Engine) -> Seeded:
    return seed(engine)


def test_an_agent_has_a_page_with_all_that_is_known_of_it(
    client: FlaskClient, engine: sa.Engine, seeded: Seeded
) -> None:
    hardware = dataclasses.replace(
        factories.agent_facts().hardware,
        accelerators=("A GPU",),
        accelerator_software={"driver": "550.54.15", "CUDA": "12.4"},
    )
    facts = factories.agent_facts(
        hardware=hardware,
        capabilities=("network", "tcp_proxy", TENSORFLOW, "torch:2.13.0"),
        labels={"zone": "a"},
        trouble="its disk is full",
    )
    with writing(engine) as session:
        factories.add_agent(
            session,
            "known",
            facts=facts,
            heartbeat_at=dt.datetime.now(dt.UTC),
            clock_offset_s=0.004,
            template_bytes=357_000_000,
        )
    page = page_of(client, "/agents/known")
    text = read(page)
    for words in (
        "Farm / agent known",
        "Takes no rank: its disk is full",
        "clock against the server's +4.00 ms",
        "warm trainers hold 357 MB",
        "1 core of A CPU",
        "accelerators A GPU",
        "their software driver 550.54.15, CUDA 12.4",
        "frameworks TensorFlow 2.21.0, PyTorch 2.13.0",
        "can do network , tcp_proxy , tensorflow , torch:2.13.0",
        "labels zone=a",
        "127.0.0.1 on lo, ports 30000 to 30099",
        "other agents on it a1 , a2 , gone",
        "reports stored none yet",
        "No control run yet.",
        "None yet.",
    ):
        assert words in text
    assert "<title>known · Benchfarm</title>" in page
    assert client.get("/agents/nobody").status_code == 404
    assert client.get("/agents/known?before=x").status_code == 400
    assert client.get("/agents/known?page=2").status_code == 400


def test_an_agent_of_an_older_version_has_a_page(client: FlaskClient, engine: sa.Engine) -> None:
    with writing(engine) as session:
        agent = session.get_one(AgentRow, factories.add_agent(session, "older"))
        hardware = dict(agent.facts["hardware"])
        del hardware["accelerator_software"]
        agent.facts = {**agent.facts, "hardware": hardware}
    assert "their software" not in read(page_of(client, "/agents/older"))


def test_the_page_of_an_agent_tells_what_became_of_its_ranks(
    client: FlaskClient, engine: sa.Engine, seeded: Seeded
) -> None:
    with writing(engine) as session:
        job_id = factories.add_job(session)
        void = factories.add_attempt(session, job_id, ["a2"], state=AttemptState.VOID)
        session.get_one(RankRow, (void, 0)).disturbed_by = "stolen by the hypervisor: 30 %"
        session.get_one(AttemptRow, void).reason = "disturbed"
    served = part_of(page_of(client, "/agents/a2"), "served")
    assert "of the last 3: 1 succeeded, 1 failed, 1 void" in served
    assert "this machine: stolen by the hypervisor: 30 %" in served
    assert "this rank: out of memory" in served
    assert "mlp on digits, mwms_ring, batch 64 1 of 2" in served
    first = page_of(client, "/agents/a1")
    assert f'id="serves" href="/jobs/{seeded.running}"' in first
    assert "busy" in first
    assert f'href="/jobs/{job_id}?attempt=1"' in page_of(client, "/agents/a2")


def test_the_ranks_of_an_agent_come_in_pages(client: FlaskClient, engine: sa.Engine) -> None:
    with writing(engine) as session:
        factories.add_agent(session, "a1")
        for job_id in factories.add_sweep(
            session, *(factories.job_spec(seed=n) for n in range(60))
        ):
            factories.add_attempt(session, job_id, ["a1"], state=AttemptState.SUCCEEDED)
    first = page_of(client, "/agents/a1")
    [older] = re.findall(r'id="older" href="([^"]*)"', first)
    second = page_of(client, older)
    tokens = [int(t) for p in (first, second) for t in re.findall(r'id="attempt-(\d+)-0"', p)]
    assert tokens == list(range(60, 0, -1))
    assert 'id="latest"' in second
    assert 'id="older"' not in second


def test_the_control_runs_of_an_agent_are_drawn_against_their_median(
    client: FlaskClient, engine: sa.Engine
) -> None:
    with writing(engine) as session:
        factories.add_agent(session, "a1")
        jobs = factories.add_sweep(session, *(factories.job_spec(seed=n) for n in range(6)))
        for job_id, control_s in zip(jobs, (1.0, 1.0, 1.0, 1.0, 1.0, 1.1), strict=True):
            token = factories.add_attempt(session, job_id, ["a1"], state=AttemptState.SUCCEEDED)
            session.get_one(RankRow, (token, 0)).control_s = control_s
    page = page_of(client, "/agents/a1")
    assert "The last one took 1.10 s: 110.0 % of the median of earlier equal ones" in read(page)
    assert "6 runs from +0.0 % to +10.0 %" in page
    chart = page.split('id="drift"', 1)[1].split("</table>", 1)[0]
    assert chart.count("<tr>") == 1 + 6


def test_what_an_agent_says_of_itself_is_shown_and_never_run(
    client: FlaskClient, engine: sa.Engine
) -> None:
    facts = factories.agent_facts(
        labels={EVIL: EVIL}, capabilities=(EVIL,), trouble=EVIL, address=EVIL, machine_id=EVIL
    )
    with writing(engine) as session:
        now = dt.datetime.now(dt.UTC)
        factories.add_agent(session, "a1", facts=facts, heartbeat_at=now)
    for path in ("/", "/agents/a1"):
        page = page_of(client, path)
        assert EVIL not in page
        assert page.count("&lt;script&gt;") >= 4
    for name in ("..%2f..%2fetc", EVIL, "a%00b", "x" * 300, "%F0%9F%92%A9"):
        assert client.get(f"/agents/{name}").status_code == 404


def test_draining_leads_back_to_the_page_one_came_from(
    client: FlaskClient, engine: sa.Engine, seeded: Seeded
) -> None:
    token = csrf_of(client)
    for path, field in (("/?sort=clock", "/?sort=clock"), ("/", "/"), ("/agents/a2", "/agents/a2")):
        page = page_of(client, path)
        form = page.split('action="/agents/a2/', 1)[1].split("</form>", 1)[0]
        assert f'name="next" value="{field}"' in form
        action = form.split('"', 1)[0]
        sent = client.post(f"/agents/a2/{action}", data={"csrf_token": token, "next": field})
        assert (sent.status_code, sent.headers["Location"]) == (303, field)
    with reading(engine) as session:
        assert session.get_one(AgentRow, "a2").is_drained  # drained, resumed, drained
    for elsewhere in ("https://evil.example", "//evil.example", "/\\evil.example", ""):
        sent = client.post("/agents/a2/resume", data={"csrf_token": token, "next": elsewhere})
        assert sent.headers["Location"] == "/"
    missing = client.post("/agents/nobody/drain", data={"csrf_token": token})
    assert missing.status_code == 404
