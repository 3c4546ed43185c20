"""`farm lab` as a user runs it; only the trainers are fakes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import sqlalchemy as sa

from farm.embedded.farm import find_marked
from farm.embedded.redis import free_port
from farm.lab.system import namespaces
from farm.store.engine import make_engine, reading
from farm.store.measurements.measurements import MeasurementFilter, list_measurements
from farm.store.tables import AgentRow
from tests.e2e.live_farm import FAKE_TRAINER, wait_until

FARM = [sys.executable, "-m", "farm.cli.main", "lab", "--agents", "2", "--delay-ms", "20"]


def environment(home: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("FARM_", "AGENT_"))}
    mine = {
        "FARM_HOME": str(home),
        "FARM_WEB_PORT": str(free_port()),
        "AGENT_TRAINER": FAKE_TRAINER,
    }
    return {**kept, **mine}


def test_a_sweep_over_the_delay_is_measured_with_that_delay(tmp_path: Path) -> None:
    done = subprocess.run(
        [*FARM, "--exit"],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Recommended for small_cnn on digits, batch 192, 20.0 ms: " in done.stdout

    engine = make_engine(f"sqlite:///{tmp_path}/farm.db")
    with reading(engine) as session:
        rows = list_measurements(session, MeasurementFilter(), limit=100)
        [agent, _] = session.scalars(sa.select(AgentRow))
        interface = agent.facts["interface"]
    engine.dispose()
    gangs = [row for row in rows if row.world_size == 2]
    assert {row.one_way_delay_s for row in gangs} == {0.0, 0.02}
    for row in gangs:
        # The farm itself voids what is a tenth beyond the delay and the untouched network.
        assert row.rtt_s == pytest.approx(2 * row.one_way_delay_s, rel=0.2, abs=0.005)
        # As the store's parts are named: the emulator that did it.
        assert row.network == ("vde_link" if row.one_way_delay_s else "none")
    assert namespaces(lab_of(interface)) == []
    assert find_marked(str(tmp_path)) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_command_leaves_no_host_and_no_process(
    tmp_path: Path, number: signal.Signals
) -> None:
    with subprocess.Popen(
        FARM, env=environment(tmp_path), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        # Scheduler, collector, web server and its worker, both agents and their couriers.
        wait_until(lambda: len(find_marked(str(tmp_path))) > 7, "the farm is up")
        prefix = lab_of(interface_of_an_agent(tmp_path))
        assert len(namespaces(prefix)) == 3
        process.send_signal(number)
        process.wait(timeout=60)
        wait_until(lambda: not namespaces(prefix), "the lab is removed")
        wait_until(lambda: not find_marked(str(tmp_path)), "no process is left")


def lab_of(interface: str) -> str:
    """What everything of the lab begins with; other labs of this machine come and go."""
    return interface.rpartition("-")[0] + "-"


def interface_of_an_agent(home: Path) -> str:
    for pid in find_marked(str(home)):
        with suppress(psutil.Error):
            found = psutil.Process(pid).environ().get("AGENT_INTERFACE")
            if found is not None:
                return found
    raise AssertionError("no agent is there")
