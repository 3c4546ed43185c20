"""Stops the processes that a benchmark has started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from typing import Any


def stop(process: subprocess.Popen[Any], *, within_s: float = 15.0) -> None:
    """Ask a process to end, and kill it if it does not."""
    process.terminate()
    try:
        process.wait(timeout=within_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def stop_group(leader: subprocess.Popen[Any], *, within_s: float) -> None:
    """Ask the leader of a process group to end, and kill what is left of all of them."""
    leader.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        leader.wait(timeout=within_s)
    end_group(leader)


def end_group(leader: subprocess.Popen[Any]) -> None:
    """Kill all that is left of a process group, its leader included."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader.pid, signal.SIGKILL)
    leader.wait()
