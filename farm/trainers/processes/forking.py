"""Fork trainers from a process that has imported what they need, and has done nothing else.

The agent asks over a socket, a byte and four descriptors a request: the trainer's standard input,
output and error, and a pipe into which the trainer writes its pid. A trainer becomes a child of
the agent and not of the template: a process forked from the template forks once more and ends,
and the kernel gives its child to the agent, which has made itself the reaper of its descendants.
So the agent waits for a warm trainer as for any other, and a template that dies takes nobody
along.

Whatever holds the pipe open may still become a trainer. Once the pipe ends without a pid there is
none and there will be none, however the template died, and the agent may start one by itself.
"""

from __future__ import annotations

import gc
import os
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from farm.errors import FarmError
from farm.trainers.processes.inherited_pages import own_inherited_pages
from farm.trainers.processes.process import EXIT_ABANDONED, leave

READY = b"ready"
REQUEST = b"fork"
_STANDARD = 3  # input, output, error
_ADOPTION_LIMIT_S = 5.0
_POLL_S = 0.0005


def settle() -> None:
    """Prepare for forks: no other thread, and no collector that writes to pages that are shared.

    Raises:
        FarmError: a library has started threads, which a fork would lose.
    """
    # OpenBLAS starts its pool when it is loaded. It gives it up at a fork, to start it anew where
    # it is needed, in the trainer.
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    gc.collect()
    gc.freeze()
    count = thread_count()
    if count != 1:
        raise FarmError(f"template: expected 1 thread, got {count}; trainers start cold")


def thread_count(pid: int | str = "self") -> int:
    """Return how many threads a process has."""
    return sum(1 for _ in Path(f"/proc/{pid}/task").iterdir())


def serve(control: socket.socket, run: Callable[[], NoReturn]) -> None:
    """Say that it is ready, and let every request's fork `run`, until the agent closes `control`.

    In a fork `run` finds descriptors, parent and session as if the agent had started it.
    """
    agent = os.getppid()
    control.send(READY)
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, len(REQUEST), _STANDARD + 1)
        if not message:
            return
        child = os.fork()
        if child == 0:
            if os.fork():
                os._exit(0)
            control.detach()  # its descriptor is closed or replaced with the trainer's own
            _become_trainer(descriptors, agent)
            run()
        for descriptor in descriptors:
            os.close(descriptor)
        os.waitpid(child, 0)


def _become_trainer(descriptors: Sequence[int], agent: int) -> None:
    *standard, reply = descriptors
    os.setsid()
    for target, descriptor in enumerate(standard):
        os.dup2(descriptor, target)
        os.close(descriptor)
    _await_adoption(agent)
    try:
        os.write(reply, b"%d" % os.getpid())
    except BrokenPipeError:
        leave(EXIT_ABANDONED)
    os.close(reply)
    # After the answer, which the agent waits for, and long before anything is measured.
    own_inherited_pages()


def _await_adoption(agent: int) -> None:
    """Wait until the agent is the parent: only then can it wait for this process."""
    deadline = time.monotonic() + _ADOPTION_LIMIT_S
    while os.getppid() != agent:
        if time.monotonic() > deadline:
            leave(EXIT_ABANDONED)
        time.sleep(_POLL_S)
