"""Trainers forked from one template, as an agent has them: most tests need no cold start.

To import TensorFlow takes seconds of a core, and each test starts two trainers or more.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from worker_agent.trainer_process.template import TemplateProcess

_PR_SET_CHILD_SUBREAPER = 36


class ForkedProcess:
    """A fork of the template that has become a child of this process, used like a `Popen`."""

    def __init__(self, stderr: IO[bytes]) -> None:
        its_stdin, ours_in = os.pipe()
        ours_out, its_stdout = os.pipe()
        self.stdin: IO[bytes] = os.fdopen(ours_in, "wb")
        self.stdout: IO[bytes] = os.fdopen(ours_out, "rb")
        try:
            with _adopting():
                pid = _template().fork([its_stdin, its_stdout, stderr.fileno()])
        finally:
            os.close(its_stdin)
            os.close(its_stdout)
        assert pid is not None, f"no fork: {_template().log_tail}"
        self.pid = pid
        self.returncode: int | None = None
        self._pidfd = os.pidfd_open(pid)

    def send_signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float) -> int:
        if self.returncode is None:
            over = select.poll()
            over.register(self._pidfd, select.POLLIN)
            if not over.poll(timeout * 1000):
                raise subprocess.TimeoutExpired("a forked trainer", timeout)
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode


@functools.cache
def _template() -> TemplateProcess:
    cpus = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    # The folder stays until the end of all tests.
    folder = tempfile.TemporaryDirectory(prefix="template-")
    template = TemplateProcess(
        1,
        [sys.executable, "-m", "farm.trainers.processes.template", cpus],
        environment=dict(os.environ),
        folder=Path(folder.name),
        post=lambda _: None,
    )
    atexit.register(folder.cleanup)
    atexit.register(template.kill)
    return template


@contextlib.contextmanager
def _adopting() -> Iterator[None]:
    """Be the parent of orphans for as long as a fork becomes a trainer, and of no others."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
