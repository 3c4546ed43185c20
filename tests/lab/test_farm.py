"""A whole farm on the hosts of a lab; only its trainers are fakes."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from farm.cli.start.lab import lab_sites
from farm.embedded.farm import EmbeddedFarm
from farm.embedded.redis import free_port
from farm.embedded.signals import StopSignals
from farm.gang.lifecycle import JobState
from farm.lab.lab import Lab
from farm.settings.server import load_settings
from farm.store.engine import make_engine, reading, writing
from farm.store.measurements.measurements import MeasurementFilter, list_measurements
from farm.store.result_tables import MeasurementRow
from farm.store.tables import AgentRow, JobRow
from farm.submission import plan, submit
from tests.e2e.live_farm import FAKE_TRAINER, wait_until


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab(hosts=2) as lab:
        yield lab


@pytest.fixture
def farm(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedFarm]:
    for name in [name for name in os.environ if name.startswith(("FARM_", "AGENT_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AGENT_TRAINER", FAKE_TRAINER)
    settings = load_settings({"FARM_HOME": str(tmp_path), "FARM_WEB_PORT": str(free_port())})
    with (
        StopSignals() as signals,
        EmbeddedFarm(
            settings,
            sites=lab_sites(lab, home=settings.home),
            broker_host=lab.server_address,
            signals=signals,
            report=print,
        ) as farm,
    ):
        yield farm


@pytest.fixture
def engine(farm: EmbeddedFarm) -> Iterator[sa.Engine]:
    engine = make_engine(farm.settings.database_url)
    yield engine
    engine.dispose()


def measured(engine: sa.Engine, farm: EmbeddedFarm) -> MeasurementRow:
    """Run one gang of both hosts over the network as it is."""
    case = {
        "model": "small_cnn",
        "dataset": "digits",
        "strategy": "mwms_ring",
        "world_size": 2,
        "global_batch_size": 32,
    }
    with writing(engine) as session:
        submitted = submit(
            session, plan({"name": "lab", "case": [case]}), now=dt.datetime.now(dt.UTC)
        )

    query = sa.select(JobRow).where(JobRow.sweep_id == submitted.sweep_id)

    def succeeded() -> bool:
        farm.check_processes()
        with reading(engine) as session:
            return session.scalars(query).one().state is JobState.SUCCEEDED

    try:
        wait_until(succeeded, "the job has succeeded")
    except AssertionError as error:
        raise AssertionError(f"{error}\n{farm.log_tails()}") from None
    with reading(engine) as session:
        [row] = list_measurements(session, MeasurementFilter(sweep_id=submitted.sweep_id), limit=2)
    return row


def test_the_farm_measures_the_round_trip_that_the_lab_has_set(
    lab: Lab, farm: EmbeddedFarm, engine: sa.Engine
) -> None:
    near = measured(engine, farm)
    lab.set_link(delay_s=0.02)
    far = measured(engine, farm)

    assert near.rtt_s is not None
    assert near.rtt_s < 0.005
    assert far.rtt_s == pytest.approx(0.04, rel=0.1)
    with reading(engine) as session:
        facts = {agent.id: agent.facts for agent in session.scalars(sa.select(AgentRow))}
    assert {name: (fact["address"], fact["interface"]) for name, fact in facts.items()} == {
        host.name: (host.address, host.interface) for host in lab.hosts
    }
