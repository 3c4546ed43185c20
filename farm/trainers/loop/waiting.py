"""Signs of life from a rank that waits for another one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from farm.trainers.loop.recorder import SEND_INTERVAL_S, StepRecorder


@contextmanager
def signs_of_life(recorder: StepRecorder) -> Iterator[None]:
    """Let the recorder report progress, at its own pace, for as long as the block lasts.

    For blocks that only wait and record nothing: the rank that works must report its own progress,
    so that a stall of it is not covered up.
    """
    over = threading.Event()

    def beat() -> None:
        while not over.wait(SEND_INTERVAL_S / 4):
            recorder.beat()

    thread = threading.Thread(target=beat, name="signs of life", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
