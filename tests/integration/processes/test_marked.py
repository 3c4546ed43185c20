"""Processes are found by their mark, whatever they do meanwhile."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from farm.processes.marked import processes_marked
from tests.fakes.server import wait_until
from worker_agent.config import load_config
from worker_agent.trainer_process.environment import AGENT_MARK
from worker_agent.trainer_process.orphans import find_marked, kill_leftovers

_LOOKS = 300
_HELD_BYTES = 400_000_000  # their pages take the kernel some tens of milliseconds
_MANY = 130
_NAME = "BENCHFARM_TEST_MARK"


def _kill(folder: Path) -> int:
    return kill_leftovers(
        load_config({"AGENT_STATE_DIR": str(folder), "AGENT_ADVERTISE_ADDRESS": "127.0.0.1"})
    )


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


def test_another_thread_than_the_first_may_become_another_program(tmp_path: Path) -> None:
    script = tmp_path / "changing.py"
    script.write_text(
        "import os, sys, threading, time\n"
        "again = [sys.executable, '-S', '-E', *sys.argv]\n"
        "threading.Thread(target=os.execv, args=(sys.executable, again)).start()\n"
        "time.sleep(600)\n"
    )
    argv, value = (sys.executable, "-S", "-E", str(script)), str(tmp_path)
    with _started(*argv, environ={_NAME: value}) as process:
        wait_until(lambda: processes_marked(_NAME, value), "its start")
        looks = [processes_marked(_NAME, value) for _ in range(_LOOKS)]
    assert [look for look in looks if look != [process.pid]] == []


def test_a_process_whose_first_thread_has_ended_is_found_and_killed(tmp_path: Path) -> None:
    end_first = (
        "import ctypes, threading, time\n"
        "threading.Thread(target=time.sleep, args=(600,)).start()\n"
        "ctypes.CDLL(None).pthread_exit(None)\n"
    )
    with _started(sys.executable, "-c", end_first, environ={AGENT_MARK: str(tmp_path)}) as process:
        stat = Path(f"/proc/{process.pid}/stat")
        wait_until(lambda: b") Z " in stat.read_bytes(), "the end of its first thread")
        assert find_marked(tmp_path) == [process.pid]
        assert _kill(tmp_path) == 1
        process.wait(timeout=60)


@pytest.mark.parametrize("is_told_before", [False, True])
def test_what_is_killed_has_let_go_of_its_memory(tmp_path: Path, is_told_before: bool) -> None:
    hold = f"held = bytearray({_HELD_BYTES}); print('held', flush=True); input()"
    argv, environ = (sys.executable, "-c", hold), {AGENT_MARK: str(tmp_path)}
    with subprocess.Popen(
        argv, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        if is_told_before:
            process.kill()
        _kill(tmp_path)
        ended = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    assert ended is not None


def test_more_than_are_held_at_once_are_killed(tmp_path: Path) -> None:
    # At last the shell is one more that sleeps: waiting for the others, it could end by itself when
    # these were killed, before it was killed too.
    many = (
        f"i=0; while [ $i -lt {_MANY} ]; do sleep 600 & i=$((i + 1)); done; echo up; exec sleep 600"
    )
    with subprocess.Popen(
        ["/bin/sh", "-c", many],
        env={AGENT_MARK: str(tmp_path)},
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as shell:
        try:
            assert shell.stdout is not None
            assert shell.stdout.readline() == b"up\n"
            assert _kill(tmp_path) == _MANY + 1
        finally:
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
    assert find_marked(tmp_path) == []


def test_who_starts_a_successor_and_ends_is_found_and_killed(tmp_path: Path) -> None:
    script = tmp_path / "hopping"
    script.write_text('#!/bin/sh\n"$0" &\n')
    script.chmod(0o700)
    try:
        with _started(str(script), environ={AGENT_MARK: str(tmp_path)}) as first:
            first.wait()
            assert _kill(tmp_path) >= 1
            assert find_marked(tmp_path) == []
    finally:
        script.unlink()  # or a successor that was missed would go on for ever


def test_who_becomes_another_program_is_killed(tmp_path: Path, changing: str) -> None:
    with _started(changing, environ={AGENT_MARK: str(tmp_path)}) as process:
        wait_until(lambda: find_marked(tmp_path), "its start")
        assert _kill(tmp_path) == 1
        process.wait(timeout=60)


@pytest.mark.parametrize("environ", [{}, {_NAME: "other"}, {f"MY_{_NAME}": "mine"}])
def test_others_are_not_found(environ: dict[str, str]) -> None:
    with _started("/bin/sleep", "600", environ=environ):
        assert processes_marked(_NAME, "mine") == []


def test_neither_who_looks_nor_who_has_ended_is_found(tmp_path: Path) -> None:
    value = str(tmp_path)
    look = (
        "from farm.processes.marked import processes_marked;"
        f"print(processes_marked({_NAME!r}, {value!r}))"
    )
    environ = {**os.environ, _NAME: value}
    with _started("/bin/true", environ=environ) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        done = subprocess.run(
            [sys.executable, "-c", look], env=environ, capture_output=True, check=True, text=True
        )
    assert done.stdout == "[]\n"


def test_a_process_with_an_odd_name_and_no_environment_hides_nobody(tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"odd) \xff")
    shutil.copy("/bin/sleep", odd)
    value = str(tmp_path)
    with (
        _started(str(odd), "600", environ={}),
        _started("/bin/sleep", "600", environ={_NAME: value}) as marked,
    ):
        wait_until(lambda: processes_marked(_NAME, value) == [marked.pid], "the marked one")
