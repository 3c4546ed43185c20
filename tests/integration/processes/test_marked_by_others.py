"""Agents that are not root find and kill what is marked, too, their trainers' user's included."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PYTHON = shutil.which("python3", path="/usr/bin")
pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may start processes as another user"),
    pytest.mark.skipif(PYTHON is None, reason="there is no Python that everybody may run"),
]
AGENT_UID = pwd.getpwnam("nobody").pw_uid
TRAINER_UID = pwd.getpwnam("daemon").pw_uid
# Of deploy/systemd/farm-agent.service, without what networks need.
CAPABILITIES = "+setuid,+setgid,+kill,+sys_ptrace"
NAME, VALUE = "BENCHFARM_TEST_MARK", f"of others {os.getpid()}"

# What it says at the end: which of those it has started were found, and whether they have ended.
HEAD = f"""
import os, signal, subprocess, sys, time
from farm.processes.marked import MarkedProcesses, processes_marked

def start(program, **more):
    environ = {{{NAME!r}: {VALUE!r}, "PYTHONPATH": ""}}
    argv = [sys.executable, "-c", program]
    process = subprocess.Popen(argv, env=environ, stdout=subprocess.PIPE, text=True, **more)
    assert process.stdout.readline() == "up\\n"
    return process

def kill_all(owner=None):
    found = set()
    with MarkedProcesses({NAME!r}, {VALUE!r}, owner=owner) as marked:
        while marked.look(signal.SIGKILL):
            found.update(marked.pids)
            marked.wait(0.5)
    return found

def has_ended(process):
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
"""
FIRST_THREAD_ENDS = (
    HEAD
    + """
process = start('''
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
print("up", flush=True)
ctypes.CDLL(None).pthread_exit(None)
''')
deadline = time.monotonic() + 60
while b") Z " not in open(f"/proc/{process.pid}/stat", "rb").read():
    assert time.monotonic() < deadline
    time.sleep(0.01)
print(kill_all() == {process.pid}, has_ended(process))
"""
)
KILLED_BEFORE = (
    HEAD
    + """
process = start('held = bytearray(400_000_000); print("up", flush=True); input()')
process.kill()
kill_all()
print(has_ended(process))
"""
)
ANOTHERS = (
    HEAD
    + f"""
program = 'import time; print("up", flush=True); time.sleep(600)'
process = start(program, user={TRAINER_UID}, group={TRAINER_UID}, extra_groups=[])
found = kill_all(owner={TRAINER_UID})
print(found == {{process.pid}}, has_ended(process))
with open("/proc/thread-self/status") as status:
    print([line.split()[4] for line in status if line.startswith("Uid:")] == ["{AGENT_UID}"])
process.kill()
"""
)


def _run(program: str, *privileges: str) -> str:
    become = ["setpriv", f"--reuid={AGENT_UID}", f"--regid={AGENT_UID}", "--clear-groups"]
    assert PYTHON is not None
    done = subprocess.run(
        [*become, *privileges, PYTHON, "-c", program],
        env={"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_one_whose_first_thread_has_ended_is_found_and_killed() -> None:
    assert _run(FIRST_THREAD_ENDS) == "True True\n"


def test_one_that_was_killed_before_is_waited_for() -> None:
    assert _run(KILLED_BEFORE) == "True\n"


def test_the_trainers_users_are_found_and_killed_with_the_units_capabilities() -> None:
    granted = (f"--inh-caps={CAPABILITIES}", f"--ambient-caps={CAPABILITIES}")
    assert _run(ANOTHERS, *granted) == "True True\nTrue\n"
