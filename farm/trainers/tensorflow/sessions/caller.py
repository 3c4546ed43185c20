"""Calls that may never return, made in a thread of their own, so that they can be given up."""

from __future__ import annotations

import queue
import re
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import tensorflow as tf

from farm.messages.trainer_lines import FailureKind
from farm.trainers.failures import RankFailed

T = TypeVar("T")
_POLL_S = 0.5
_WRAPPING = re.compile(r"Graph execution error:|={3,}|\[\[\{\{node .*?\}\}\]\]")
_CONNECTION_ERRORS = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
)


class BoundedCaller:
    """Runs one call at a time; `problem` says why a call that has not returned never will.

    Handing a call over and back costs some 20 us a step. A call that was given up keeps its thread
    for good, which is why the process leaves without waiting for threads.
    """

    def __init__(self, problem: Callable[[], str | None]) -> None:
        self._problem = problem
        self._calls: queue.SimpleQueue[Callable[[], Any]] = queue.SimpleQueue()
        self._outcomes: queue.SimpleQueue[tuple[Any, Exception | None]] = queue.SimpleQueue()
        threading.Thread(target=self._serve, name="session calls", daemon=True).start()

    def call(self, work: Callable[[], T], *, timeout_s: float | None = None) -> T:
        """Return what `work` returns, or raise what it raises.

        Raises:
            RankFailed: PEER_LOST, a process that it needs is gone, or `timeout_s` is over.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self._calls.put(work)
        while True:
            try:
                value, error = self._outcomes.get(timeout=_POLL_S)
                break
            except queue.Empty:
                problem = self._problem()
            if problem is None and deadline is not None and time.monotonic() > deadline:
                problem = f"the peers were not there within {timeout_s:g} s"
            if problem is not None:
                raise RankFailed(FailureKind.PEER_LOST, problem)
        if isinstance(error, _CONNECTION_ERRORS):
            said = " ".join(_WRAPPING.sub(" ", str(error)).split())[:300]
            problem = self._problem() or f"a connection broke: {said}"
            raise RankFailed(FailureKind.PEER_LOST, problem) from error
        if error is not None:
            raise error
        found: T = value
        return found

    def _serve(self) -> None:
        while True:
            work = self._calls.get()
            outcome: tuple[Any, Exception | None]
            try:
                outcome = work(), None
            except Exception as error:
                outcome = None, error
            self._outcomes.put(outcome)
