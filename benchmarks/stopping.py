"""Processes that a benchmark has started, and must not leave behind."""

from __future__ import annotations

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
