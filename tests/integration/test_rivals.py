"""What the farm is compared with: each really runs the jobs, to their end."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from benchmarks.compare import WORKS
from benchmarks.rivals import Contender, ShellLoop, celery_groups
from farm.errors import FarmError
from tests.redis_server import RedisServer

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
    play_two(ShellLoop(tmp_path))


def test_a_job_that_fails_is_no_time_of_the_loops(tmp_path: Path) -> None:
    failing = dataclasses.replace(WORK, environment={"FAKE_TRAINER": "meet,exit:3"})
    with pytest.raises(FarmError, match="without a result"):
        ShellLoop(tmp_path).play(failing, first_seed=1, job_count=1)


def test_a_celery_group_is_a_gang(tmp_path: Path, broker: RedisServer) -> None:
    with celery_groups(broker.url, tmp_path) as celery:
        play_two(celery)
