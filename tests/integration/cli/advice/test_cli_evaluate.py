"""`farm evaluate` on a small imported table, from the command line."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import sqlalchemy as sa

from tests.commands.farm_command import FarmCommand
from tests.fakes.server import wait_until
from tests.truths.synthetic_steps import grid, measure


@pytest.fixture
def farm(engine: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FarmCommand:
    command = FarmCommand(engine, tmp_path / "home", monkeypatch)
    observations = measure(grid(world_sizes=(1, 2, 4), batches=(64, 256, 1024)))
    lines = ["model,dataset,strategy,world_size,global_batch_size,one_way_delay_ms,step_time_s"]
    for o in observations:
        c = o.configuration
        cells = (c.model, c.dataset, c.strategy, c.world_size, c.global_batch_size)
        lines.append(",".join(map(str, (*cells, c.one_way_delay_s * 1000, o.step_time_s))))
    table = tmp_path / "mine.csv"
    table.write_text("\n".join(lines) + "\n")
    command.json("import", "table", str(table), "--origin", "mine")
    return command


def test_every_split_is_scored(farm: FarmCommand, tmp_path: Path) -> None:
    report = tmp_path / "report"
    answer = farm.json(
        *("evaluate", "--origin", "mine", "--predictor", "physical", "--no-few-shot"),
        *("--split", "random", "--split", "batch", "--split", "delay", "--report", str(report)),
        *("--jobs", "1"),
    )
    by_split = {score["split"]: score for score in answer["splits"]}
    assert list(by_split) == ["random", "batch", "delay", "all that leave one out"]
    random = by_split["random"]
    assert random["errors"]["answered_count"] == answer["observation_count"] == 27
    assert random["errors"]["median_ratio"] < 0.2
    assert random["unseen_choices"]["choice_count"] == 12
    assert random["choices"]["choice_count"] > 12
    assert 0 <= random["intervals"][0]["local"]["coverage_ratio"] <= 1
    page = (report / "mine.md").read_text()
    pictures = re.findall(r"\]\((images/[^)]+)\)", page)
    assert len(pictures) == 3
    assert all((report / picture).read_text().startswith("<?xml") for picture in pictures)
    assert "| physical | random |" in page


def test_a_script_is_asked_for_by_its_name(farm: FarmCommand, tmp_path: Path) -> None:
    text = (tmp_path / "mine.csv").read_text()
    for number, digits in enumerate(("a" * 12, "b" * 12)):
        name = f"script:train.py@{digits},own,torch_script"
        own = text.replace("small_cnn,digits,mwms_ring", name)
        (tmp_path / f"{number}.csv").write_text(own)
        farm.json("import", "table", str(tmp_path / f"{number}.csv"), "--origin", "scripts")
    (tmp_path / "requested.csv").write_text("world_size,global_batch_size\n2,64\n")
    command = ("predict", str(tmp_path / "requested.csv"), "--origin", "scripts")
    [known] = farm.json(*command, "--script", "train.py")["items"]
    assert known["basis"] == "measured"
    [of_first] = farm.json(*command, "--script", "train.py", "--script-sha256", "aaaa")["items"]
    assert set(known["measurement_ids"]).isdisjoint(of_first["measurement_ids"])
    answer = farm.json(
        *("evaluate", "--origin", "scripts", "--predictor", "physical", "--no-few-shot"),
        *("--split", "random", "--script", "train.py", "--jobs", "1"),
    )
    assert answer["model"] == f"script:train.py@{'b' * 12}"
    assert "expected --script" in farm.refusal(*command, "--parameter", "hidden=1", status=2)


def test_a_report_stays_in_its_folder_whatever_the_origin_is_called(
    farm: FarmCommand, tmp_path: Path
) -> None:
    origin, report = "../../of <us>", tmp_path / "in" / "report"
    farm.json("import", "table", str(tmp_path / "mine.csv"), "--origin", origin)
    farm.json(
        *("evaluate", "--origin", origin, "--predictor", "physical", "--no-few-shot"),
        *("--split", "batch", "--report", str(report), "--jobs", "1"),
    )
    assert [path.name for path in report.glob("*.md")] == ["_.._of__us_.md"]
    assert len(list((report / "images").iterdir())) == 3
    assert [path.name for path in (tmp_path / "in").iterdir()] == ["report"]


def test_an_interrupt_of_the_terminal_is_silent_while_processes_start(farm: FarmCommand) -> None:
    program = _started("--predictor", "physical")
    wait_until(lambda: _workers(program.pid), "it has started processes")
    os.killpg(program.pid, signal.SIGINT)
    printed = program.communicate(timeout=60)  # all who could print have ended
    assert (program.returncode, "".join(printed).strip()) == (130, "")


def test_no_process_outlives_a_command_that_is_killed(farm: FarmCommand) -> None:
    program = _started()
    workers = wait_until(lambda: _at_work(program.pid), "its processes work")
    program.kill()
    _, alive = psutil.wait_procs(workers, timeout=30)
    os.killpg(program.pid, signal.SIGKILL)
    program.communicate(timeout=60)
    assert not alive


def _started(*arguments: str) -> subprocess.Popen[str]:
    command = ("evaluate", "--origin", "mine", "--jobs", "2", *arguments)
    return subprocess.Popen(
        [sys.executable, "-m", "farm.cli.main", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _at_work(pid: int) -> list[psutil.Process]:
    """Return the processes once they have taken longer than it takes to start one."""
    return [worker for worker in _workers(pid) if worker.cpu_times().user > 1.5]


def _workers(pid: int) -> list[psutil.Process]:
    children = psutil.Process(pid).children()
    return [child for child in children if "spawn_main" in " ".join(child.cmdline())]


def test_after_few_measurements_planned_and_at_random(farm: FarmCommand) -> None:
    answer = farm.json(
        *("evaluate", "--origin", "mine", "--predictor", "physical", "--split", "batch"),
        "--quick",
    )
    assert {score["split"] for score in answer["splits"]} == {"batch"}
    tried = {(score["measurement_count"], score["is_planned"]) for score in answer["few_shots"]}
    assert tried == {(count, way) for count in (6, 10, 12, 15, 20) for way in (True, False)}


@pytest.mark.parametrize(
    ("arguments", "status", "line"),
    [
        (["--predictor", "oracle"], 2, "--predictor: expected one of "),
        (["--split", "colour"], 2, "--split: expected one of 'random', "),
        (["--origin", "nobody"], 1, "origin 'nobody': the store has no"),
    ],
)
def test_a_wrong_name_is_one_line(
    farm: FarmCommand, arguments: list[str], status: int, line: str
) -> None:
    assert line in farm.refusal("evaluate", "--origin", "mine", *arguments, status=status)
