"""One rank of a job without the farm: start its trainer, let it find its peers, wait for its end.

What whoever launches ranks by other means has to do for each of them. The trainer is the farm's, so
the work is the same, in a process of its own: TensorFlow joins one gang in a process's life.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.figures import root
from farm.configuration.spec import JobSpec
from farm.embedded.redis import free_port
from farm.errors import FarmError
from farm.messages.trainer_lines import (
    Assignment,
    Failure,
    GoLine,
    Steps,
    TrainerResult,
    read_event,
)
from farm.submission import plan
from farm.values.codec import from_json, to_json

WORLD_SIZE = 2
LIMIT_S = 120.0  # of one rank, whose peer may never come


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What every job does. `trainer`: its command; `environment`: its variables beside ours."""

    name: str
    trainer: tuple[str, ...]
    environment: Mapping[str, str]
    case: Mapping[str, Any]

    def order(self, rank: int) -> dict[str, Any]:
        """Return all that a rank must be told, as plain JSON. Each has its part of the cores."""
        spec = plan({"name": "by hand", "case": [self.case]}).expansion.jobs[0]
        cores = sorted(os.sched_getaffinity(0))
        own = cores[rank * len(cores) // WORLD_SIZE : (rank + 1) * len(cores) // WORLD_SIZE]
        return {
            "trainer": list(self.trainer),
            "environment": {**self.environment, "PYTHONPATH": str(root())},
            "assignment": to_json(Assignment(job=spec, rank=rank, cpus=tuple(own))),
        }


def assignment_line(order: Mapping[str, Any], *, seed: int) -> str:
    """Return the first line that a trainer reads; each job of a sweep has a seed of its own."""
    given = from_json(Assignment, order["assignment"])
    job: JobSpec = replace(given.job, seed=seed)
    return json.dumps(to_json(replace(given, job=job))) + "\n"


def go_line(addresses: Sequence[str], *, rank: int) -> str:
    """Return the second: where the peers are."""
    return json.dumps(to_json(GoLine(cluster={"worker": tuple(addresses)}, task_index=rank))) + "\n"


def run_rank(
    order: Mapping[str, Any], *, seed: int, rank: int, meet: Callable[[str], Sequence[str]]
) -> float:
    """Run a rank to its end; return the seconds that its steps took.

    `meet` is handed this rank's host:port and returns those of all ranks, by rank.

    Raises:
        FarmError: it did not succeed.
    """
    trainer = subprocess.Popen(
        order["trainer"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **order["environment"]},
    )
    limit = threading.Timer(LIMIT_S, trainer.kill)
    limit.start()
    try:
        assert trainer.stdin is not None
        assert trainer.stdout is not None
        trainer.stdin.write(assignment_line(order, seed=seed))
        trainer.stdin.flush()
        # Whoever imports a framework does so meanwhile.
        addresses = meet(f"127.0.0.1:{free_port()}")
        trainer.stdin.write(go_line(addresses, rank=rank))
        trainer.stdin.flush()
        found_s = steps_s(trainer.stdout)
        trainer.wait()
        return found_s
    finally:
        limit.cancel()
        trainer.kill()
        trainer.communicate()


def steps_s(lines: Iterable[str]) -> float:
    """Return how long the steps took of which a trainer tells until it ends.

    Raises:
        FarmError: it did not succeed.
    """
    found_s, has_ended = 0.0, False
    for line in lines:
        event = read_event(line)
        if isinstance(event, Steps):
            found_s += sum(event.times_s)
        elif isinstance(event, Failure):
            raise FarmError(f"a trainer failed: {event.kind.value}: {event.message}")
        elif isinstance(event, TrainerResult):
            has_ended = True
    if not has_ended:
        raise FarmError(f"a trainer ended without a result, or not within {LIMIT_S:g} s")
    return found_s
