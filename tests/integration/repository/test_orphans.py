"""A run of tests that is killed leaves no process of its farms."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil

from tests.fakes.server import wait_until

ROOT = Path(__file__).parents[3]
_TESTS = '''
import os, signal, subprocess, sys, threading
from pathlib import Path
from tests.services.redis_server import RedisServer

RedisServer(Path(sys.argv[1])).start()
sleep = [sys.executable, "-c", "import time; time.sleep(1000)"]
other = f"""
import signal, subprocess
print(subprocess.Popen({sleep}).pid, flush=True)
signal.pause()
"""
thread = threading.Thread(target=lambda: subprocess.Popen(sleep, start_new_session=True))
thread.start()
thread.join()
stopped = subprocess.Popen(sleep)
stopped.send_signal(signal.SIGSTOP)
nested = subprocess.Popen([sys.executable, "-c", other], stdout=subprocess.PIPE)
nested.stdout.readline()
print("started", flush=True)
signal.pause()
'''


def test_what_tests_have_started_ends_when_they_are_killed(tmp_path: Path) -> None:
    """Redis, one of a thread that has ended, one that is stopped, and one of another process."""
    tests = subprocess.Popen(
        [sys.executable, "-c", _TESTS, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE
    )
    assert tests.stdout is not None
    assert tests.stdout.readline() == b"started\n"
    started = psutil.Process(tests.pid).children(recursive=True)
    assert len(started) == 6, "with the guard"
    tests.send_signal(signal.SIGKILL)
    tests.wait(timeout=60)
    tests.stdout.close()
    wait_until(lambda: not any(map(is_alive, started)), "all have ended")


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
