"""`farm lab` as a user runs it; only the trainers are fakes."""

from __future__ import annotations

import json
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


# Rank 1 answers each byte of rank 0: a step is a round trip.
PING = """
import os, socket, time
import benchfarm
rank = int(os.environ["FARM_RANK"])
host, port = os.environ["FARM_RANK_ADDRESSES"].split(",")[0].rsplit(":", 1)
if rank == 0:
    connection, _ = socket.create_server((host, int(port))).accept()
else:
    while True:
        try:
            connection = socket.create_connection((host, int(port)))
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
while True:
    if rank == 0:
        connection.send(b"x")
    connection.recv(1)
    if rank == 1:
        connection.send(b"x")
    benchfarm.step()
"""


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
    assert "Recommended for small_cnn on digits, batch 192, 20.0 ms one way: " in done.stdout

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


def test_a_script_of_ones_own_is_measured_over_the_labs_links(tmp_path: Path) -> None:
    (tmp_path / "ping.py").write_text(PING)
    own = environment(tmp_path / "home")
    del own["AGENT_TRAINER"]

    def farm(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "farm.cli.main", *words]
        return subprocess.run(
            command, env=own, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False
        )

    with subprocess.Popen(FARM, env=own, stdout=subprocess.DEVNULL) as lab:
        try:
            # Its own sweep takes minutes.
            wait_until(lambda: farm("cancel", "1").returncode == 0, "sweep of the lab")
            done = farm(
                *("measure", "--launcher", "none", "--world-size", "2", "--steps", "20"),
                *("--global-batch-size", "2", "--one-way-delay-ms", "0,20", "--json"),
                *("--", "python", "ping.py"),
            )
        finally:
            lab.send_signal(signal.SIGINT)
            lab.wait(timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    steps_s = {
        job["one_way_delay_s"]: job["step_time_s"] for job in json.loads(done.stdout)["jobs"]
    }
    assert steps_s[0.02] - steps_s[0.0] == pytest.approx(0.04, rel=0.2)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_command_leaves_no_host_and_no_process(
    tmp_path: Path, number: signal.Signals
) -> None:
    with subprocess.Popen(
        FARM, env=environment(tmp_path), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        # Scheduler, collector, web server and its worker, both agents and their broker clients.
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
