"""`farm measure` as its user sees it: a script that knows nothing of the farm, and what is said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from farm.embedded.redis import free_port

DDP = """
import argparse
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
import net

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, required=True)
given = parser.parse_args()
dist.init_process_group("gloo")
model = DistributedDataParallel(net.make())
optimizer = torch.optim.AdamW(model.parameters())
while True:
    x, y = torch.randn(given.batch_size, 64), torch.randint(0, 10, (given.batch_size,))
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    optimizer.zero_grad()
"""
NET = "import torch\ndef make():\n    return torch.nn.Linear(64, 10)\n"


def measure(home: Path, script: Path, *arguments: str) -> tuple[int, str, str]:
    """Run the command; return its status, its output and what it said beside."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("FARM_", "AGENT_"))}
    *options, words = arguments
    done = subprocess.run(
        [
            *(sys.executable, "-m", "farm.cli.main", "measure", *options),
            *("--", "python", str(script), *words.split()),
        ],
        env={**environment, "FARM_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.mark.torch
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two ranks need two cores")
def test_an_unchanged_script_is_measured_on_one_and_two_ranks(home: Path, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(DDP)
    (tmp_path / "net.py").write_text(NET)
    options = ("--global-batch-size", "32", "--steps", "20", "--json")
    status, output, errors = measure(home, script, *options, "--batch-size {per_rank_batch_size}")
    assert status == 0, errors
    answer: dict[str, Any] = json.loads(output)
    jobs = {job["world_size"]: job for job in answer["jobs"]}
    assert jobs.keys() == {1, 2}
    for job in jobs.values():
        assert job["state"] == "succeeded"
        assert job["timed_step_count"] == 20
        assert job["step_time_s"] > 0
        assert job["throughput_examples_per_s"] > 0
    assert answer["recommended"]["world_size"] in (1, 2)
    assert "2 of 2 jobs done" in errors


def test_a_script_that_fails_is_named_with_its_reason(home: Path, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("raise ValueError('no such data')")
    options = ("--global-batch-size", "8", "--world-size", "1", "--launcher", "none", "--json")
    status, output, errors = measure(home, script, *options, "")
    assert status == 1, errors
    [job] = json.loads(output)["jobs"]
    assert (job["state"], job["failure_kind"]) == ("failed", "trainer_raised")
    assert "ValueError: no such data" in job["failure_reason"]
    assert job["step_time_s"] is None


@pytest.mark.parametrize(
    ("options", "words", "reason"),
    [
        (("--global-batch-size", "8"), "{hiden}", "case[0].args: expected a placeholder of"),
        (("--global-batch-size", "x"), "", "--global-batch-size: expected whole numbers"),
        (("--global-batch-size", "8", "--world-size", "4097"), "", "--world-size: expected"),
        (("--global-batch-size", "8", "--parameter", "x"), "", "--parameter: expected NAME=V1,V2"),
        (("--global-batch-size", "8", "--repetitions", "0"), "", "--repetitions: expected"),
        (
            ("--global-batch-size", "8", "--parameter", "a=1", "--parameter", "a=2"),
            "{a}",
            "all values of a in one",
        ),
        (("--global-batch-size", "8", "--parameter", "a=1,,2"), "{a}", "a text that is not empty"),
        (("--global-batch-size", "8", "--parameter", "a={rank}"), "{a}", "without words in braces"),
    ],
)
def test_wrong_usage_starts_no_farm(
    options: tuple[str, ...], words: str, reason: str, home: Path, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text("")
    status, output, errors = measure(home, script, *options, words)
    assert (status, output) == (2, "")
    assert reason in errors
    assert not (home / "logs").exists()


def test_a_network_that_this_machine_cannot_emulate_is_refused_before_anything_is_queued(
    home: Path, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text("")
    options = ("--global-batch-size", "8", "--launcher", "none", "--one-way-delay-ms", "20")
    status, _, errors = measure(home, script, *options, "")
    if status != 2:
        pytest.skip("this machine can emulate it")
    assert "farm lab" in errors


def test_on_a_farm_that_is_up_its_agents_run_the_script_and_files_beside_it(
    home: Path, tmp_path: Path
) -> None:
    """A bundle of several pieces, called from the folder above the script's."""
    folder = tmp_path / "own"
    (folder / "src").mkdir(parents=True)
    (folder / "data.txt").write_bytes(os.urandom(10**6).hex().encode())
    (folder / "src/train.py").write_text(
        "import benchfarm, pathlib, time\n"
        "assert len(pathlib.Path('data.txt').read_text()) == 2 * 10**6\n"
        "pathlib.Path('out.txt').write_text('mine')\n"
        "while True:\n"
        "    time.sleep(0.01)\n"
        "    benchfarm.step()\n"
    )
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("FARM_", "AGENT_"))}
    environment |= {"FARM_HOME": str(home), "FARM_WEB_PORT": str(free_port())}
    command = (sys.executable, "-m", "farm.cli.main")
    options = ("--global-batch-size", "8", "--steps", "10", "--launcher", "none", "--json")
    with subprocess.Popen(
        [*command, "up"], env=environment, stdout=subprocess.PIPE, text=True
    ) as farm:
        try:
            assert farm.stdout is not None
            next(line for line in farm.stdout if line.startswith("Dashboard"))
            done = subprocess.run(
                [*command, "measure", *options, "--", "python", "src/train.py"],
                env=environment,
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=240,
            )
        finally:
            farm.terminate()
            farm.wait(timeout=60)
    assert done.returncode == 0, done.stderr
    assert "on the farm that runs in" in done.stderr
    jobs = json.loads(done.stdout)["jobs"]
    assert {job["world_size"]: job["state"] for job in jobs} == {1: "succeeded", 2: "succeeded"}
    assert sorted(path.name for path in folder.iterdir()) == ["data.txt", "src"]
