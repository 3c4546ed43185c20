"""Runs a function in a separate process so that the server stays responsive.

A fit takes seconds of many short numpy calls. In a thread of the server it would take the
interpreter's lock whenever a request waits for the store, a dozen times a page: pages then took
twice as long. Starting the process takes a second or two, for which no request waits.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import IO, TypeVar, cast

from farm.errors import FarmError
from farm.trainers.processes.process import end_with_parent

_NICENESS = 10  # requests, and trainers on the same machine, go first
_LIMIT_S = 900.0  # far longer than anything takes; then it hangs

_A = TypeVar("_A")
_R = TypeVar("_R")
_INTERRUPT = {signal.SIGINT}


def run_in_subprocess(work: Callable[[_A], _R], argument: _A, *, limit_s: float = _LIMIT_S) -> _R:
    """Return the result of `work`, a function of a module, called in another process.

    The process ends with the thread that called this.

    Raises:
        FarmError: the process ended without an answer, or had none within `limit_s`.
        Exception: what `work` has raised.
    """
    # Pickled: both ends are this program, and nobody else can reach the pipes between them.
    payload = pickle.dumps((work, argument))
    with spared_children():  # it ends with its parent
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
    with child:
        try:
            answer, _ = child.communicate(payload, timeout=limit_s)
        except subprocess.TimeoutExpired:
            child.kill()
            raise FarmError(f"a subprocess returned no result within {limit_s:g} s") from None
    if child.returncode != 0:
        raise FarmError(f"a subprocess ended with status {child.returncode}")
    outcome, error = pickle.loads(answer)  # noqa: S301 (our own child wrote it)
    if error is not None:
        raise cast(Exception, error)
    return cast(_R, outcome)


def in_subprocess(work: Callable[[_A], _R]) -> Callable[[_A], _R]:
    """Return a function that runs `work` in a separate process."""
    return partial(run_in_subprocess, work)


def _answer(stream: IO[bytes]) -> bytes:
    work, argument = pickle.load(stream)  # noqa: S301 (our own parent wrote it)
    try:
        return pickle.dumps((work(argument), None))
    except Exception as error:
        return pickle.dumps((None, error))


def _main() -> None:
    end_with_parent()
    os.nice(_NICENESS)
    # What a library prints must not come between the bytes of the answer.
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        answers.write(_answer(sys.stdin.buffer))


@contextmanager
def spared_children() -> Iterator[None]:
    """Start child processes within this block that ignore Ctrl-C, even during imports.

    They inherit the blocked signal, so the caller must end them. An interrupt of this process is
    raised after the block; within it, a process could be left without its first message.
    """
    came: list[int] = []
    is_main = threading.current_thread() is threading.main_thread()
    # The mask is only this thread's: the interrupt may come to another one, and is handled in this.
    handler = signal.getsignal(signal.SIGINT)
    if is_main:
        signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPT)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if is_main:
            signal.signal(signal.SIGINT, handler)
        if came:
            signal.raise_signal(signal.SIGINT)


if __name__ == "__main__":
    _main()
