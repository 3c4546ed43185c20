"""A real agent is killed while it shapes its host: what it applied is gone moments later."""

from __future__ import annotations

import datetime as dt
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import sqlalchemy as sa

from farm.embedded.farm import EmbeddedFarm
from farm.embedded.redis import free_port
from farm.embedded.signals import StopSignals
from farm.embedded.sites import LocalAgent
from farm.gang.lifecycle import JobState
from farm.lab.hosts import Host
from farm.lab.lab import Lab
from farm.lab.system import processes_in
from farm.lab.wirefilter import WireDirection, Wirefilter
from farm.settings.server import load_settings
from farm.store.engine import make_engine, reading, writing
from farm.store.sweeps.jobs import request_cancel_sweep
from farm.store.tables import JobRow
from farm.submission import plan, submit
from tests.e2e.live_farm import FAKE_TRAINER, wait_until
from worker_agent.network import watchdog

DELAY_S = 0.02
CLEAN_WITHIN_S = 10.0
SWEEP = {
    "name": "chaos",
    "case": [
        {
            "model": "small_cnn",
            "dataset": "digits",
            "strategy": "mwms_ring",
            "world_size": 2,
            "global_batch_size": 32,
            "steps": 200,
            "one_way_delay_ms": DELAY_S * 1000,
        }
    ],
}


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab(hosts=2) as lab:
        yield lab


@pytest.fixture
def farm(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedFarm]:
    for name in [name for name in os.environ if name.startswith(("FARM_", "AGENT_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AGENT_TRAINER", FAKE_TRAINER)
    monkeypatch.setenv("AGENT_TRAINER_ENVIRONMENT", "FAKE_TRAINER")
    monkeypatch.setenv("FAKE_TRAINER", "steps_s:1")  # long enough to be killed in
    settings = load_settings({"FARM_HOME": str(tmp_path), "FARM_WEB_PORT": str(free_port())})
    with (
        StopSignals() as signals,
        EmbeddedFarm(
            settings,
            sites=[site_of(host, tmp_path) for host in lab.hosts],
            broker_host=lab.server_address,
            signals=signals,
            report=print,
        ) as farm,
    ):
        yield farm


def site_of(host: Host, home: Path) -> LocalAgent:
    settings = {
        "AGENT_ADVERTISE_ADDRESS": host.address,
        "AGENT_INTERFACE": host.interface,
        "AGENT_SHARES_CORES": "true",
        "AGENT_STATE_DIR": str(home / host.name),
    }
    return LocalAgent(agent_id=host.name, settings=settings, prefix=host.command(()))


@pytest.mark.parametrize("is_watchdog_killed", [False, True], ids=["agent", "agent and watchdog"])
def test_an_agent_killed_in_a_shaped_attempt_leaves_a_clean_link(
    lab: Lab, farm: EmbeddedFarm, is_watchdog_killed: bool
) -> None:
    host = lab.hosts[0]
    sweep_id = run_shaped_job(farm)
    assert delay_s(host) == DELAY_S

    agent, guards = find_program(host, "worker_agent"), find_program(host, watchdog.__file__)
    assert (len(agent), len(guards)) == (1, 2)  # one for the link, one for the ports
    # The watchdog first: it has no moment to act.
    for pid in (*(guards if is_watchdog_killed else ()), *agent):
        os.kill(pid, signal.SIGKILL)
    if is_watchdog_killed:
        cancel(farm, sweep_id)  # before another attempt it would be undone as well
        wait_until(lambda: not find_program(host, "worker_agent", *agent), "the agent is dead")
        assert delay_s(host) == DELAY_S, "nobody was there to undo it"

        def is_restarted() -> bool:
            farm.check_processes()
            return bool(find_program(host, "worker_agent"))

        wait_until(is_restarted, "the agent has been started again")
    wait_until(lambda: delay_s(host) == 0, "the link is clean", within_s=CLEAN_WITHIN_S)
    wait_until(lambda: not find_program(host, watchdog.__file__), "no watchdog is left")


def run_shaped_job(farm: EmbeddedFarm) -> int:
    """Return the sweep's id in the middle of the first attempt."""
    engine = make_engine(farm.settings.database_url)
    with writing(engine) as session:
        submitted = submit(session, plan(SWEEP), now=dt.datetime.now(dt.UTC))

    def is_running() -> bool:
        farm.check_processes()
        with reading(engine) as session:
            job = session.scalars(
                sa.select(JobRow).where(JobRow.sweep_id == submitted.sweep_id)
            ).one()
            return job.state is JobState.RUNNING

    wait_until(is_running, "the job runs")
    engine.dispose()
    return submitted.sweep_id


def cancel(farm: EmbeddedFarm, sweep_id: int) -> None:
    engine = make_engine(farm.settings.database_url)
    with writing(engine) as session:
        assert request_cancel_sweep(session, sweep_id, now=dt.datetime.now(dt.UTC)) == 1
    engine.dispose()


def delay_s(host: Host) -> float:
    """What the host's wire itself says of what leaves the host."""
    return Wirefilter.of_interface(host.interface).read(WireDirection.FROM_HOST).one_way_delay_s


def find_program(host: Host, word: str, *among: int) -> list[int]:
    """Return who lives on the host and has that word on its command line."""
    found = []
    for pid in processes_in(host.namespace):
        with suppress(psutil.Error):
            if word in psutil.Process(pid).cmdline() and (not among or pid in among):
                found.append(pid)
    return found
