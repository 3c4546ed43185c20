"""Let a fork of this process do what may crash it."""

from __future__ import annotations

import logging
import os
import select
import signal
import time
from collections.abc import Callable

from farm.trainers.processes.process import end_with_parent

logger = logging.getLogger(__name__)

_EXIT_RAISED = 70
_MOST_BYTES_AT_ONCE = 65_536
_WHOLE = b"."  # the last byte of a whole answer


def in_fork(work: Callable[[], bytes], *, limit_s: float) -> bytes | None:
    """Return what `work` returns in a fork of this process, whatever that costs the fork.

    The fork has this process's memory as it is, and of its threads only the one that called. None
    where it raised, crashed, or had not ended within `limit_s`, when it is killed; the log says so.
    """
    answers, answer = os.pipe()
    try:
        pid = os.fork()
    except OSError as error:
        os.close(answer)
        os.close(answers)
        logger.warning("no fork: %s", error)
        return None
    if pid == 0:
        _work_and_end(work, answer)
    os.close(answer)
    told = _read_to_end(answers, limit_s)
    os.close(answers)
    if told is None:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)  # it has closed its end of the pipe, and ends
    if told is None or not told.endswith(_WHOLE):
        logger.warning("a fork gave no answer: status %d", os.waitstatus_to_exitcode(status))
        return None
    return told.removesuffix(_WHOLE)


def _work_and_end(work: Callable[[], bytes], answer: int) -> None:
    try:
        end_with_parent()
        with os.fdopen(answer, "wb") as told:
            told.write(work() + _WHOLE)
    except BaseException:
        logger.exception("a fork failed")
        os._exit(_EXIT_RAISED)
    os._exit(0)


def _read_to_end(descriptor: int, limit_s: float) -> bytes | None:
    deadline = time.monotonic() + limit_s
    readable = select.poll()
    readable.register(descriptor, select.POLLIN | select.POLLHUP)
    parts: list[bytes] = []
    while readable.poll(max(0.0, deadline - time.monotonic()) * 1000):
        part = os.read(descriptor, _MOST_BYTES_AT_ONCE)
        if not part:
            return b"".join(parts)
        parts.append(part)
    return None
