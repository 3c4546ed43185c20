"""What people run short jobs of several ranks with instead, each as its own guide advises.

Each has two slots, as the farm has two agents, and stays up between the rounds. What a rank does is
in `benchmarks.rank_by_hand`; how ranks find each other is each one's own. `python -m
benchmarks.rivals BROKER_URL NAME` is a Celery worker of one slot.
"""

from __future__ import annotations

import importlib
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from celery import Celery, group

from benchmarks.figures import root
from benchmarks.rank_by_hand import (
    LIMIT_S,
    WORLD_SIZE,
    Work,
    assignment_line,
    go_line,
    run_rank,
    steps_s,
)
from benchmarks.stopping import stop
from farm.embedded.redis import free_port
from farm.errors import FarmError
from farm.wire import open_client

_QUEUE, _TASK = "benchmark.ranks", "benchmark.rank"
_MEET_S = 60.0


@dataclass(frozen=True, slots=True)
class Played:
    """A round: how long it took, and of each job how long its steps did.

    `processor_s`: what all processes together have had of the cores meanwhile.
    """

    makespan_s: float
    steps_s: tuple[float, ...]
    processor_s: float = 0.0


class Contender(Protocol):
    """Whoever runs jobs of two ranks on two slots."""

    def play(self, work: Work, *, first_seed: int, job_count: int) -> Played: ...


class ShellLoop:
    """A loop as in a batch script: start both ranks, wait for both, go on to the next job.

    Peers are known beforehand, as from Slurm's list of hosts and ports that the script chooses.
    """

    _SCRIPT = """
    for job in {jobs}; do
      for rank in {ranks}; do
        exec 3<>"$job.$rank.in"
        cat "$job.$rank.lines" >&3
        {trainer} <&3 >"$job.$rank.out" 2>/dev/null 3>&- &
        exec 3>&-
      done
      wait
    done
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def play(self, work: Work, *, first_seed: int, job_count: int) -> Played:
        seeds = range(first_seed, first_seed + job_count)
        orders = [work.order(rank) for rank in range(WORLD_SIZE)]
        for seed in seeds:
            addresses = [f"127.0.0.1:{free_port()}" for _ in orders]
            for rank, order in enumerate(orders):
                os.mkfifo(self._folder / f"{seed}.{rank}.in")  # stays open, as an agent's pipe does
                lines = assignment_line(order, seed=seed) + go_line(addresses, rank=rank)
                (self._folder / f"{seed}.{rank}.lines").write_text(lines)
        script = self._SCRIPT.format(
            jobs=" ".join(map(str, seeds)),
            ranks=" ".join(map(str, range(WORLD_SIZE))),
            trainer=shlex.join(work.trainer),
        )
        begun_s = time.monotonic()
        subprocess.run(
            ["bash", "-c", script],
            cwd=self._folder,
            env={**os.environ, **orders[0]["environment"]},
            timeout=LIMIT_S * job_count,
            check=True,
        )
        makespan_s = time.monotonic() - begun_s
        return Played(makespan_s, tuple(self._steps_s(seed) for seed in seeds))

    def _steps_s(self, seed: int) -> float:
        outputs = [self._folder / f"{seed}.{rank}.out" for rank in range(WORLD_SIZE)]
        return max(steps_s(output.read_text().splitlines()) for output in outputs)


class CeleryGroups:
    """A `group` with one task a rank for each job; ranks meet at a list of the same Redis.

    Acknowledged late and prefetching nothing, as Celery's guide has it for long tasks: otherwise a
    worker keeps the second rank of a gang in its hands while it waits in the first.
    """

    def __init__(self, broker_url: str) -> None:
        self._app = make_celery(broker_url)

    def play(self, work: Work, *, first_seed: int, job_count: int) -> Played:
        rank_task = self._app.tasks[_TASK]
        orders = [work.order(rank) for rank in range(WORLD_SIZE)]
        begun_s = time.monotonic()
        sent = [
            group(rank_task.s(order, seed, rank) for rank, order in enumerate(orders)).apply_async()
            for seed in range(first_seed, first_seed + job_count)
        ]
        steps = tuple(max(gang.get(timeout=LIMIT_S * job_count)) for gang in sent)
        return Played(time.monotonic() - begun_s, steps)


def make_celery(broker_url: str) -> Any:
    """Return the app with its one task, for both ends."""
    app = Celery("benchmark", broker=broker_url, backend=broker_url, set_as_current=False)
    app.conf.update(
        task_default_queue=_QUEUE,
        task_acks_late=True,
        worker_prefetch_multiplier=1,
        broker_connection_retry_on_startup=True,
    )

    def rank_task(order: dict[str, Any], seed: int, rank: int) -> float:
        def meet(address: str) -> list[str]:
            addresses = [""] * WORLD_SIZE
            with open_client(broker_url, timeout_s=2 * _MEET_S) as client:
                for peer in range(WORLD_SIZE):
                    client.rpush(f"benchmark.{seed}.{peer}", f"{rank} {address}")
                for _ in range(WORLD_SIZE):
                    came = client.blpop([f"benchmark.{seed}.{rank}"], timeout=_MEET_S)
                    if came is None:
                        raise FarmError(f"no peer within {_MEET_S:g} s")
                    number, place = came[1].decode().split()
                    addresses[int(number)] = place
            return addresses

        return run_rank(order, seed=seed, rank=rank, meet=meet)

    app.task(rank_task, name=_TASK, shared=False)
    return app


@contextmanager
def celery_groups(broker_url: str, folder: Path) -> Iterator[CeleryGroups]:
    """Run two workers of one slot each, on a Redis that is there."""
    with ExitStack() as stack:
        for number in range(WORLD_SIZE):
            command = [
                sys.executable,
                "-P",
                "-m",
                "benchmarks.rivals",
                broker_url,
                f"slot-{number}",
            ]
            with (folder / f"celery-{number}.log").open("wb") as log:
                worker = subprocess.Popen(command, cwd=root(), stdout=log, stderr=log)
            stack.callback(stop, worker)
        yield CeleryGroups(broker_url)


class DaskTasks:
    """One task a rank; ranks meet at queues of Dask's own.

    Each worker has one thread and is handed nothing before that is free, or the second rank of a
    gang may wait behind the first on the same one.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    def play(self, work: Work, *, first_seed: int, job_count: int) -> Played:
        orders = [work.order(rank) for rank in range(WORLD_SIZE)]
        seeds = range(first_seed, first_seed + job_count)
        calls = [(order, seed, rank) for seed in seeds for rank, order in enumerate(orders)]
        begun_s = time.monotonic()
        futures = self._client.map(dask_rank, *zip(*calls, strict=True), pure=False)
        found = self._client.gather(futures)
        makespan_s = time.monotonic() - begun_s
        gangs = zip(*(found[rank::WORLD_SIZE] for rank in range(WORLD_SIZE)), strict=True)
        return Played(makespan_s, tuple(max(gang) for gang in gangs))


def dask_rank(order: dict[str, Any], seed: int, rank: int) -> float:
    """Run one rank in a worker of Dask's."""
    distributed: Any = importlib.import_module("distributed")

    def meet(address: str) -> Sequence[str]:
        for peer in range(WORLD_SIZE):
            distributed.Queue(f"{seed}.{peer}").put((rank, address))
        own = distributed.Queue(f"{seed}.{rank}")
        came = dict(own.get(timeout=_MEET_S) for _ in range(WORLD_SIZE))
        return [came[peer] for peer in range(WORLD_SIZE)]

    return run_rank(order, seed=seed, rank=rank, meet=meet)


@contextmanager
def dask_tasks(folder: Path) -> Iterator[DaskTasks]:
    """Run a scheduler and two workers; `distributed` must be installed."""
    # Loaded by name, since only this benchmark has it.
    dask: Any = importlib.import_module("dask")
    distributed: Any = importlib.import_module("distributed")
    with (
        dask.config.set({"distributed.scheduler.worker-saturation": 1.0}),
        distributed.LocalCluster(
            n_workers=WORLD_SIZE,
            threads_per_worker=1,
            dashboard_address=None,
            local_directory=str(folder),
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield DaskTasks(client)


def main() -> None:
    """Run a Celery worker of one slot until SIGTERM."""
    broker_url, name = sys.argv[1:]
    worker = make_celery(broker_url).Worker(
        hostname=f"{name}@benchmark", queues=[_QUEUE], concurrency=1, loglevel="WARNING"
    )
    worker.start()


if __name__ == "__main__":
    main()
