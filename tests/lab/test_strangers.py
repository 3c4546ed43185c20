"""A host of the gang's own network that is no peer: what it reaches while a real farm trains."""

from __future__ import annotations

import datetime as dt
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from farm.cli.start.lab import lab_sites
from farm.embedded.farm import EmbeddedFarm
from farm.embedded.redis import free_port
from farm.embedded.signals import StopSignals
from farm.gang.lifecycle import JobState
from farm.lab.hosts import Host
from farm.lab.lab import Lab
from farm.settings.server import load_settings
from farm.store.engine import make_engine, reading, writing
from farm.store.sweeps.jobs import request_cancel_sweep
from farm.store.tables import JobRow
from farm.submission import plan, submit
from tests.e2e.live_farm import FAKE_TRAINER, wait_until
from worker_agent.network import nft

obstacle = nft.find_obstacle()
pytestmark = pytest.mark.skipif(obstacle is not None, reason=str(obstacle))

_CONNECT = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=5)
    print("in")
except ConnectionRefusedError:
    print("refused")
"""


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab(hosts=3) as lab:
        yield lab


@pytest.fixture
def farm(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedFarm]:
    """Agents on the first two hosts; nobody is on the third."""
    for name in [name for name in os.environ if name.startswith(("FARM_", "AGENT_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AGENT_TRAINER", f"{FAKE_TRAINER} ports,steps_s:1")
    monkeypatch.setenv("AGENT_CLOSES_PORTS", "always")
    settings = load_settings({"FARM_HOME": str(tmp_path), "FARM_WEB_PORT": str(free_port())})
    with (
        StopSignals() as signals,
        EmbeddedFarm(
            settings,
            sites=lab_sites(lab, home=settings.home)[:2],
            broker_host=lab.server_address,
            signals=signals,
            report=print,
        ) as farm,
    ):
        yield farm


def closed_ports(lab: Lab, host: Host) -> list[int]:
    """Return the ports that the host's rules name."""
    rules = lab.run(host, ["nft", "list", "ruleset"]).stdout
    named = re.search(r"tcp dport \{ ([0-9, ]+) \} counter", rules)
    return [int(port) for port in named[1].split(",")] if named else []


def try_port(lab: Lab, source: Host, target: Host, port: int) -> str:
    done = lab.run(source, ["python3", "-c", _CONNECT, target.address, str(port)])
    return done.stdout.strip() or done.stderr


@pytest.fixture
def engine(farm: EmbeddedFarm) -> Iterator[sa.Engine]:
    engine = make_engine(farm.settings.database_url)
    yield engine
    engine.dispose()


def test_a_stranger_of_the_network_does_not_reach_a_trainer(
    lab: Lab, farm: EmbeddedFarm, engine: sa.Engine
) -> None:
    near, far, stranger = lab.hosts
    case = {
        "model": "small_cnn",
        "dataset": "digits",
        "strategy": "mwms_ring",
        "world_size": 2,
        "global_batch_size": 32,
        "steps": 200,
    }
    with writing(engine) as session:
        now = dt.datetime.now(dt.UTC)
        submitted = submit(session, plan({"name": "strangers", "case": [case]}), now=now)
    query = sa.select(JobRow).where(JobRow.sweep_id == submitted.sweep_id)

    def state() -> JobState:
        farm.check_processes()
        with reading(engine) as session:
            return session.scalars(query).one().state

    wait_until(lambda: state() is JobState.RUNNING, "the job runs")
    ports = closed_ports(lab, near)
    assert len(ports) == 2
    for port in ports:
        assert try_port(lab, far, near, port) == "in"
        assert try_port(lab, stranger, near, port) == "refused"
    with writing(engine) as session:
        request_cancel_sweep(session, submitted.sweep_id, now=dt.datetime.now(dt.UTC))
    wait_until(
        lambda: state() is JobState.CANCELLED and not any(closed_ports(lab, h) for h in lab.hosts),
        "the job has gone, and its rules with it",
    )
    assert "packets of strangers to this rank's ports were refused: 2" in farm.log_tails()
