"""`farm reproduce` without a lab: agents of this machine, no root; only the trainers are fakes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from farm.embedded.farm import find_marked
from farm.embedded.redis import free_port
from farm.studies.publishing import read_runs
from tests.e2e.live_farm import FAKE_TRAINER

pytestmark = pytest.mark.alone

SWEEP = """
name = "a tiny study"

[[case]]
model = "small_cnn"
dataset = "digits"
strategy = "single"
world_size = 1
global_batch_size = 32
epochs = 1

[[case]]
model = "small_cnn"
dataset = "digits"
strategy = "mwms_ring"
world_size = 2
global_batch_size = 32
epochs = 1
"""
DEADLINE_S = 120
CORES = sorted(os.sched_getaffinity(0))


def reproduce(home: Path, *arguments: str, cores: int = 2) -> subprocess.CompletedProcess[str]:
    """Run the command on so many cores of this machine, with a store of its own."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("FARM_", "AGENT_"))}
    return subprocess.run(
        [sys.executable, "-m", "farm.cli.main", "reproduce", "processes", *arguments],
        env={
            **kept,
            "FARM_HOME": str(home),
            "FARM_WEB_PORT": str(free_port()),
            "AGENT_TRAINER": FAKE_TRAINER,
        },
        preexec_fn=lambda: os.sched_setaffinity(0, CORES[:cores]),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    file = tmp_path / "tiny.toml"
    file.write_text(SWEEP)
    return file


@pytest.mark.skipif(len(CORES) < 2, reason="a core for each of two agents")
def test_a_study_on_loopback_is_measured_and_written(sweep: Path, tmp_path: Path) -> None:
    home, out = tmp_path / "home", tmp_path / "out"
    arguments = ("--sweep", str(sweep), "--out", str(out))

    done = reproduce(home, *arguments)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "starting a farm with 2 agents" in done.stderr
    assert done.stdout.splitlines()[0] == str(out / "studies/processes.md")
    assert (out / "studies/processes.toml").read_text() == SWEEP
    data = (out / "studies/processes.csv").read_text()
    runs = sorted(read_runs(data, name="processes.csv"), key=lambda run: run["world_size"])
    # An agent has one core, and one rank one agent.
    assert [(run["strategy"], run.core_count) for run in runs] == [("single", 1), ("mwms_ring", 2)]
    assert (out / "studies/processes.md").read_text().startswith("# One process against several")
    assert (out / "images/processes-time.png").stat().st_size > 0
    assert find_marked(str(home)) == []

    # What is measured is not measured again: the same command starts no farm.
    again = reproduce(home, *arguments)

    assert again.returncode == 0, again.stdout + again.stderr
    assert again.stdout == done.stdout
    assert "starting a farm" not in again.stderr
    assert (out / "studies/processes.csv").read_text() == data


def test_a_machine_with_too_few_cores_is_refused_in_one_line(sweep: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = reproduce(tmp_path / "home", "--sweep", str(sweep), "--out", str(out), cores=1)

    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stderr.splitlines()[-1] == (
        "farm: study 'processes' needs 2 cores, one for each agent, and this machine lets it have 1"
    )
    assert not out.exists()
