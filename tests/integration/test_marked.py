"""Processes are found by their mark, whatever they do meanwhile."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from farm.marked import processes_marked
from tests.fakes.server import wait_until
from worker_agent.leftovers import MARK, find_marked, kill_marked

_LOOKS = 300
_NAME = "BENCHFARM_TEST_MARK"


@contextmanager
def _started(*argv: str, environ: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(argv, env=environ, start_new_session=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def changing(tmp_path: Path) -> str:
    """A program that does nothing but become itself, again and again."""
    script = tmp_path / "changing"
    script.write_text('#!/bin/sh\nexec "$0"\n')
    script.chmod(0o700)
    return str(script)


@pytest.mark.parametrize("more_bytes", [0, 40_000], ids=["small", "of 40 kB"])
def test_who_becomes_another_program_is_found_at_every_look(
    tmp_path: Path, changing: str, more_bytes: int
) -> None:
    value = str(tmp_path)
    environ = {"A": "a" * more_bytes, _NAME: value}
    with _started(changing, environ=environ) as process:
        wait_until(lambda: processes_marked(_NAME, value), "its start")
        looks = [processes_marked(_NAME, value) for _ in range(_LOOKS)]
    assert [look for look in looks if look != [process.pid]] == []


def test_who_becomes_another_program_is_killed(tmp_path: Path, changing: str) -> None:
    with _started(changing, environ={MARK: str(tmp_path)}) as process:
        wait_until(lambda: find_marked(tmp_path), "its start")
        assert kill_marked(tmp_path) == 1
        process.wait(timeout=60)


@pytest.mark.parametrize("environ", [{}, {_NAME: "other"}, {f"MY_{_NAME}": "mine"}])
def test_others_are_not_found(environ: dict[str, str]) -> None:
    with _started("/bin/sleep", "600", environ=environ):
        assert processes_marked(_NAME, "mine") == []


def test_neither_who_looks_nor_who_has_ended_is_found(tmp_path: Path) -> None:
    value = str(tmp_path)
    look = (
        f"from farm.marked import processes_marked; print(processes_marked({_NAME!r}, {value!r}))"
    )
    environ = {**os.environ, _NAME: value}
    with _started("/bin/true", environ=environ) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        said = subprocess.run(
            [sys.executable, "-c", look], env=environ, capture_output=True, check=True, text=True
        )
    assert said.stdout == "[]\n"


def test_a_process_with_an_odd_name_and_no_environment_hides_nobody(tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"odd) \xff")
    shutil.copy("/bin/sleep", odd)
    value = str(tmp_path)
    with (
        _started(str(odd), "600", environ={}),
        _started("/bin/sleep", "600", environ={_NAME: value}) as marked,
    ):
        wait_until(lambda: processes_marked(_NAME, value) == [marked.pid], "the marked one")
