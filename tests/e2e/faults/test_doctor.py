"""A whole farm: the doctor on it while its parts go away, and an agent of another version."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from farm.broker.sending import Sender
from farm.gang.lifecycle import JobState
from farm.messages.commands import StartRank
from farm.messages.envelope import WIRE_VERSION
from farm.store.agents.agents import list_agents
from farm.store.engine import reading
from tests.e2e.live_farm import REPOSITORY, LiveFarm, wait_until
from tests.factories import job_spec
from tests.fakes.former_agent import FORMER_WIRE_VERSION


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[LiveFarm]:
    live = LiveFarm(tmp_path, server={"FARM_LOG_FORMAT": "json"})
    try:
        live.start(agent_count=1, trainer={"FARM_LOG_FORMAT": "json"})
        yield live
    finally:
        live.stop()


def ask(farm: LiveFarm) -> dict[str, Any]:
    """Run the command; return what it found, by check."""
    done = subprocess.run(
        [sys.executable, "-m", "farm.cli.main", "doctor", "--json"],
        env=farm.server_environment(),
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    answer = json.loads(done.stdout)
    assert done.returncode == (0 if answer["is_well"] else 1)
    return {check["name"]: check for check in answer["checks"]}


def wrong(farm: LiveFarm) -> set[str]:
    return {name for name, check in ask(farm).items() if check["level"] == "wrong"}


def log(farm: LiveFarm, name: str) -> list[dict[str, Any]]:
    """Return the lines of a process that writes JSON."""
    text = (farm.home / "logs" / f"{name}.log").read_text()
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def test_the_doctor_finds_what_was_taken_away(farm: LiveFarm) -> None:
    wait_until(lambda: wrong(farm) == set(), "nothing is wrong")
    farm.kill("scheduler", signal.SIGTERM)
    farm.processes["scheduler"].wait(timeout=20)
    assert wrong(farm) == {"scheduler"}
    farm.redis.kill()
    checks = ask(farm)
    assert checks["broker"]["level"] == "wrong"
    assert {checks["scheduler"]["level"], checks["collector"]["level"]} == {"unknown"}
    assert checks["database"]["level"] == "well"
    farm.redis.start()
    farm.start_server("scheduler")
    wait_until(lambda: wrong(farm) == set(), "nothing is wrong any more")


def test_lines_about_a_rank_carry_its_job_attempt_and_rank(farm: LiveFarm) -> None:
    [job] = farm.wait_for_end(farm.submit(strategy="single", world_size=1, steps=5))
    assert job.state is JobState.SUCCEEDED
    [attempt] = farm.attempts(job.id)
    ids = {"job_id": job.id, "attempt_id": attempt.id, "rank": 0}
    lines = wait_until(
        lambda: (
            (entries := log(farm, "agent-1"))
            and entries[-1]["message"] == "rank is over"
            and entries
        ),
        "the agent has said that its rank is over",
    )
    begun = [line["message"] for line in lines].index("rank begins")
    for line in lines[begun:]:
        assert {**ids, "agent_id": "agent-1"}.items() <= line.items()
    assert all("job_id" not in line for line in lines[:begun])
    by_message = {
        line["message"]: line for line in log(farm, "scheduler") if line.get("job_id") == job.id
    }
    assert {"gang leased", "attempt went on: running", "attempt ended: succeeded"} <= set(
        by_message
    )
    assert {line["attempt_id"] for line in by_message.values()} == {attempt.id}


def test_an_agent_of_another_version_is_refused_and_both_sides_say_so(farm: LiveFarm) -> None:
    former = FORMER_WIRE_VERSION
    begun_s = time.monotonic()
    farm.start_former_agent()

    def lines(name: str, word: str) -> list[dict[str, Any]]:
        return [line for line in log(farm, name) if word in line["message"]]

    # It cannot read what it is answered, and says which version that has.
    message = (
        f"wire version {former}: server and agents need the same benchfarm, got {WIRE_VERSION}"
    )
    wait_until(lambda: lines("former", message), "the agent says what is wrong")
    refused = f"agent speaks wire version {former}, and this server {WIRE_VERSION}: install this"
    [line, *_] = lines("collector", refused)
    assert line["agent_id"] == "former"
    wait_until(lambda: "versions" in wrong(farm), "the doctor names it")
    finding = ask(farm)["versions"]["findings"][0]
    assert finding["what"].startswith(f"former speaks wire version {former}")
    # One line a minute on each side, however many messages there were meanwhile.
    most = 1 + (time.monotonic() - begun_s) // 60
    assert 1 <= len(lines("former", "wire version")) <= most
    assert 1 <= len(lines("collector", "wire version")) <= most
    # Nor is a command of ours half understood: it starts nothing there.
    sender = Sender(farm.redis.url)
    start = StartRank(
        token=99, rank=0, agent_count=1, roles=("worker",), spec=job_spec(), prepare_timeout_s=9
    )
    sender.send([("former", start)])
    sender.close()
    wait_until(lambda: lines("former", "start_rank was refused"), "the command is refused")
    assert farm.trainers_of("former") == []
    assert not lines("former", "rank begins")
    # The store has never heard of it, and the farm works.
    with reading(farm.engine) as session:
        assert [agent.id for agent in list_agents(session)] == ["agent-1"]
    [job] = farm.wait_for_end(farm.submit(strategy="single", world_size=1, steps=5))
    assert job.state is JobState.SUCCEEDED
