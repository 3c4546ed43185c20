"""A fork may do what would crash its process: whatever becomes of it, the process lives on."""

from __future__ import annotations

import faulthandler
import os
import signal
from collections.abc import Callable

import pytest

from farm.trainers.tensorflow.profile import in_fork


def test_a_fork_tells_what_it_made_of_this_process_memory() -> None:
    seen = bytes(range(256)) * 4_000  # more than a pipe holds
    assert in_fork(lambda: seen + str(os.getppid()).encode(), limit_s=30.0) == (
        seen + str(os.getpid()).encode()
    )


def crash() -> bytes:
    faulthandler.disable()  # pytest's, which would show it as the tests' own
    os.kill(os.getpid(), signal.SIGSEGV)
    raise AssertionError


def fail() -> bytes:
    raise ValueError("no trace")


def stop_at_once() -> bytes:
    os._exit(0)


def hang() -> bytes:
    signal.pause()
    return b""


@pytest.mark.parametrize(
    ("work", "limit_s", "status"),
    [(crash, 30.0, "-11"), (fail, 30.0, "70"), (stop_at_once, 30.0, "0"), (hang, 0.05, "-9")],
)
def test_a_fork_that_does_not_answer_costs_only_its_answer(
    work: Callable[[], bytes], limit_s: float, status: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert in_fork(work, limit_s=limit_s) is None
    assert caplog.messages[-1] == f"a fork gave no answer: status {status}"
