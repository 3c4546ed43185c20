"""A whole farm tells receivers of sweeps that end or are over budget, and of a killed agent."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from farm.gang.lifecycle import JobState
from farm.store.engine import reading
from farm.store.notifications import list_deliveries
from tests.e2e.live_farm import DEADLINE_S, LiveFarm, live_farm, wait_until
from tests.integration.notifications.receiver import Receiver


def test_a_farm_tells_of_a_sweep_that_ends_and_of_an_agent_that_was_killed(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    server = {
        "FARM_NOTIFY_URLS": f"http://127.0.0.1:{port}/hook?key=s3cret",
        "FARM_NOTIFY_ALLOW": "127.0.0.1",
        "FARM_LOG_LEVEL": "DEBUG",
    }
    with live_farm(tmp_path, agent_count=2, server=server) as farm:
        sweep_id = farm.submit()
        farm.wait_for_end(sweep_id)

        def has_failed() -> bool:
            with reading(farm.engine) as session:
                return any(one.attempt_count for one in list_deliveries(session, limit=10))

        wait_until(has_failed, "somebody tried to tell of the sweep")
        farm.kill("agent-1")
        with Receiver(port).serving() as receiver:
            wait_until(lambda: len(receiver.received) >= 2, "both messages arrived")
            kinds = {message["type"]: message["data"] for message in receiver.messages}
    assert kinds["sweep.finished"]["sweep_id"] == sweep_id
    assert kinds["agent.lost"]["agent_id"] == "agent-1"
    assert "s3cret" not in (tmp_path / "logs" / "scheduler.log").read_text()


SWEEP = """
name = "limited"
repetitions = 6
budget_machine_hours = 1e-6

[[case]]
model = "small_cnn"
dataset = "digits"
strategy = "single"
world_size = 1
global_batch_size = 32
"""


@pytest.mark.slow
def test_a_sweep_over_its_budget_stops_tells_of_it_and_goes_on_with_another(
    tmp_path: Path,
) -> None:
    (tmp_path / "sweep.toml").write_text(SWEEP)
    with Receiver().serving() as receiver:
        server = {"FARM_NOTIFY_ALLOW": "127.0.0.1"}
        with live_farm(tmp_path, agent_count=1, server=server) as farm:
            notify = ("--notify", receiver.address)
            waited = _farm(farm, "submit", str(tmp_path / "sweep.toml"), "--wait", *notify)
            assert waited.returncode == 1
            assert "the budget of 0.000001 machine hours is used up" in waited.stderr
            wait_until(lambda: receiver.received, "the message arrived")
            states = Counter(job.state for job in farm.jobs(1))
            assert states[JobState.SUCCEEDED] >= 1
            assert states[JobState.SUCCEEDED] + states[JobState.WAITING] == 6
            farm.kill("scheduler")
            farm.start_server("scheduler")
            assert _farm(farm, "resume", "1").returncode == 1
            resumed = _farm(farm, "resume", "1", "--budget-machine-hours", "1")
            assert resumed.stdout == "sweep 1 goes on\n"
            assert {job.state for job in farm.wait_for_end(1)} == {JobState.SUCCEEDED}
            wait_until(lambda: len(receiver.received) >= 2, "both messages arrived")
            used_up, ended = receiver.messages
    assert (used_up["type"], ended["type"]) == ("budget.used_up", "sweep.finished")
    left = used_up["data"]["jobs_by_state"]["waiting"]
    assert left == states[JobState.WAITING] > 0
    assert used_up["data"]["spent_machine_s"] >= used_up["data"]["budget_machine_s"] > 0


def _farm(farm: LiveFarm, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "farm.cli.main", *arguments],
        env=farm.server_environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
