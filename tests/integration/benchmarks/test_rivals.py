"""What the farm is compared with: each really runs the jobs, to their end."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import psutil
import pytest

from benchmarks.jobs.compare import WORKS
from benchmarks.jobs.rivals import Contender, celery_groups
from benchmarks.jobs.shell_loop import ShellLoop
from farm.embedded.signals import Stopped
from farm.errors import FarmError
from tests.services.redis_server import RedisServer

WORK = dataclasses.replace(
    WORKS["fake"],
    environment={"FAKE_TRAINER": "steps_s:0.002,meet"},
    case={**WORKS["fake"].case, "steps": 20},
)


def play_two(contender: Contender) -> None:
    played = contender.play(WORK, first_seed=1, job_count=2)
    assert [round(job_s, 6) for job_s in played.steps_s] == [0.05, 0.05]  # 25 steps
    assert played.makespan_s > 2 * 0.05


def test_a_loop_of_the_shell_runs_both_ranks_of_each_job(tmp_path: Path) -> None:
    play_two(ShellLoop(tmp_path, pause=time.sleep))


def test_a_job_that_fails_is_no_time_of_the_loops(tmp_path: Path) -> None:
    failing = dataclasses.replace(WORK, environment={"FAKE_TRAINER": "meet,exit:3"})
    with pytest.raises(FarmError, match="without a result"):
        ShellLoop(tmp_path, pause=time.sleep).play(failing, first_seed=1, job_count=1)


HANGING = dataclasses.replace(WORK, environment={"FAKE_TRAINER": "meet,hang"})


def trainers(folder: Path) -> list[psutil.Process]:
    """The processes that work in the folder, dead ones left out."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.cwd() == str(folder) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def test_a_ctrl_c_ends_the_loops_turn_and_leaves_no_process(tmp_path: Path) -> None:
    seen: list[psutil.Process] = []
    deadline = time.monotonic() + 60

    def pause(seconds: float) -> None:
        seen[:] = trainers(tmp_path)
        if len(seen) == 3 or time.monotonic() > deadline:  # the shell and both ranks
            raise Stopped
        time.sleep(seconds)

    with pytest.raises(Stopped):
        ShellLoop(tmp_path, pause=pause).play(HANGING, first_seed=1, job_count=2)
    assert len(seen) == 3
    _, alive = psutil.wait_procs(seen, timeout=10)
    assert alive == []


def test_a_ctrl_c_ends_the_turn_of_celery(tmp_path: Path, broker: RedisServer) -> None:
    has_asked = []

    def pause(seconds: float) -> None:
        has_asked.append(seconds)
        raise Stopped

    with pytest.raises(Stopped), celery_groups(broker.url, tmp_path, pause=pause) as celery:
        celery.play(HANGING, first_seed=1, job_count=1)
    assert has_asked


def test_a_celery_group_is_a_gang(tmp_path: Path, broker: RedisServer) -> None:
    with celery_groups(broker.url, tmp_path, pause=time.sleep) as celery:
        play_two(celery)
