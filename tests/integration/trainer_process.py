"""Start real trainers and talk to them by their line protocol, always within a deadline."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, TypeVar

from farm.configuration.spec import JobSpec
from farm.messages.trainer_lines import (
    Assignment,
    Failure,
    GoLine,
    Ready,
    StepKind,
    Steps,
    TrainerEvent,
    TrainerResult,
    read_event,
)
from farm.registry import strategy
from farm.values.codec import to_json
from tests.integration.forked_process import ForkedProcess

E = TypeVar("E", bound=object)
DEADLINE_S = 240.0


class TrainerProcess:
    """One `python -m farm.trainers`, or a fork that is as good, killed when the block ends."""

    def __init__(self, log: Path, *, role: str = "worker", is_forked: bool = False) -> None:
        self.log = log
        self.role = role
        self.events: list[
            tuple[float, TrainerEvent]
        ] = []  # with the instant of their arrival, monotonic
        self._arrived: queue.Queue[tuple[float, TrainerEvent] | None] = queue.Queue()
        with log.open("wb") as stderr:
            self.process: subprocess.Popen[bytes] | ForkedProcess = (
                ForkedProcess(stderr) if is_forked else _cold(stderr)
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> TrainerProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.process.wait(DEADLINE_S)
        self._reader.join(DEADLINE_S)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()

    def write(self, line: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write((json.dumps(to_json(line)) + "\n").encode())
        self.process.stdin.flush()

    def close_stdin(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def wait_for(self, kind: type[E], *, timeout_s: float = DEADLINE_S) -> E:
        """Return the next event of `kind`; a failure in its place fails the test."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                arrived = self._arrived.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(
                    f"no {kind.__name__} in {timeout_s} s; {self.story()}"
                ) from None
            if arrived is None:
                raise AssertionError(f"ended before {kind.__name__}; {self.story()}")
            self.events.append(arrived)
            event = arrived[1]
            if isinstance(event, kind):
                return event
            assert not isinstance(event, Failure), f"{event}; {self.story()}"

    def arrived(self) -> list[TrainerEvent]:
        """Return what came since the last wait, of a trainer that has ended."""
        self._reader.join(DEADLINE_S)
        found = []
        while (event := self._arrived.get()) is not None:
            found.append(event[1])
        return found

    def exit_code(self, *, timeout_s: float = DEADLINE_S) -> int:
        return self.process.wait(timeout_s)

    def seen(self, kind: type[E]) -> list[E]:
        """Return the events of `kind` that came so far, in order."""
        return [event for _, event in self.events if isinstance(event, kind)]

    def step_times_s(self, kind: StepKind) -> list[float]:
        return [t for steps in self.seen(Steps) if steps.kind is kind for t in steps.times_s]

    def story(self) -> str:
        return f"events: {[e for _, e in self.events]}; log: {self.log.read_text()[-3000:]}"

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._arrived.put((time.monotonic(), read_event(line.decode())))
        self._arrived.put(None)


@contextlib.contextmanager
def gang(
    job: JobSpec, folder: Path, *, data_dir: Path | None = None, is_forked: bool | None = None
) -> Iterator[list[TrainerProcess]]:
    """Start every rank of a job on its own core where there are enough, and let them begin.

    `is_forked`: None: if its framework is the template's. Yields the role processes of all ranks,
    those that train before the servers.
    """
    with started(job, folder, data_dir=data_dir, is_forked=is_forked) as trainers:
        for trainer in trainers:
            trainer.wait_for(Ready)
        go(trainers)
        yield trainers


@contextlib.contextmanager
def started(
    job: JobSpec, folder: Path, *, data_dir: Path | None = None, is_forked: bool | None = None
) -> Iterator[list[TrainerProcess]]:
    """Start every rank of a job and give it its assignment; it waits for go."""
    cpus = sorted(os.sched_getaffinity(0))
    if is_forked is None:
        # What the template has imported is TensorFlow's.
        is_forked = strategy(job.strategy).facts.framework == "tensorflow"
    processes = [(rank, role) for rank, roles in enumerate(job.roles) for role in roles]
    with contextlib.ExitStack() as stack:
        trainers: list[TrainerProcess] = []
        for rank, role in sorted(processes, key=lambda process: process[1] != "worker"):
            log = folder / f"rank{rank}-{role}{len(trainers)}.log"
            trainer = stack.enter_context(TrainerProcess(log, role=role, is_forked=is_forked))
            trainer.write(
                Assignment(
                    job=job,
                    rank=rank,
                    role=role,
                    cpus=(cpus[rank % len(cpus)],),
                    data_dir=str(data_dir) if data_dir else None,
                )
            )
            trainers.append(trainer)
        yield trainers


def go(trainers: list[TrainerProcess], *, batch_weights: tuple[float, ...] | None = None) -> None:
    cluster: dict[str, tuple[str, ...]] = {}
    places = []
    for trainer, port in zip(trainers, free_ports(len(trainers)), strict=True):
        before = cluster.get(trainer.role, ())
        places.append(len(before))
        cluster[trainer.role] = (*before, f"127.0.0.1:{port}")
    for trainer, place in zip(trainers, places, strict=True):
        trainer.write(GoLine(cluster=cluster, task_index=place, batch_weights=batch_weights))


def _cold(stderr: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "farm.trainers"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        start_new_session=True,
    )


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for held in sockets:
            held.bind(("127.0.0.1", 0))
        return [int(held.getsockname()[1]) for held in sockets]


def results(trainers: list[TrainerProcess]) -> list[TrainerResult]:
    """Wait for every rank's result and for its end with exit code 0."""
    found = [trainer.wait_for(TrainerResult) for trainer in trainers]
    assert [trainer.exit_code() for trainer in trainers] == [0] * len(trainers)
    return found
