"""Handles Ctrl-C, which a terminal sends to all of its processes at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_INTERRUPT = {signal.SIGINT}


@contextmanager
def spared_children() -> Iterator[None]:
    """Start processes here that an interrupt does not end, not even while they import.

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
