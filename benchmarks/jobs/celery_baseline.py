"""A bare Celery worker, with the defaults but for its pool, as a baseline for ours.

`python -m benchmarks.jobs.celery_baseline BROKER_URL FILE POOL` runs it until SIGTERM; its one task
notes the time in the file. Its concurrency is one: one process with the pool `solo`, as our own
Celery workers are, or with `prefork`, Celery's default, a child beside it.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from celery import Celery

from benchmarks.figures import root
from benchmarks.stopping import stop
from farm.errors import FarmError

_QUEUE = "benchmark.bare"


def make_baseline_app(broker_url: str, noted: Path) -> Any:
    """Return the app with its task `benchmark.note`, for both ends."""
    app = Celery("benchmark", broker=broker_url, set_as_current=False)
    app.conf.update(
        task_default_queue=_QUEUE, task_ignore_result=True, broker_connection_retry_on_startup=True
    )

    def note() -> None:
        began = time.time()
        with noted.open("a") as file:
            file.write(f"{began!r}\n")

    app.task(note, name="benchmark.note", shared=False)
    return app


@contextmanager
def bare_worker(broker_url: str, noted: Path, *, pool: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a worker whose task notes in a file when it began."""
    noted.touch()
    command = [sys.executable, "-P", "-m", "benchmarks.jobs.celery_baseline"]
    with noted.with_suffix(".log").open("wb") as log:
        worker = subprocess.Popen(
            [*command, broker_url, str(noted), pool], cwd=root(), stdout=log, stderr=log
        )
    try:
        yield worker
    finally:
        stop(worker)


def note_times_s(
    broker_url: str, noted: Path, *, count: int, pause: Callable[[float], None]
) -> list[float]:
    """Send a worker its task, one at a time; return the seconds until each one began.

    `pause` sleeps, and raises what it likes if the user asked for the end.
    """
    app = make_baseline_app(broker_url, noted)
    note = app.tasks["benchmark.note"]
    times_s = []
    for number in range(count):
        begun = time.time()
        note.apply_async()
        deadline = time.monotonic() + 30
        while len(lines := noted.read_text().split()) <= number:
            if time.monotonic() > deadline:
                raise FarmError("the bare Celery worker did not take its task within 30 s")
            pause(0.005)
        times_s.append(float(lines[number]) - begun)
    app.close()
    return times_s


def main() -> None:
    """Run the worker until SIGTERM."""
    broker_url, noted, pool = sys.argv[1:]
    app = make_baseline_app(broker_url, Path(noted))
    worker = app.Worker(
        hostname="bare@benchmark", queues=[_QUEUE], pool=pool, concurrency=1, loglevel="WARNING"
    )
    worker.start()


if __name__ == "__main__":
    main()
