"""Runs short jobs of several ranks by Celery or Dask, each as its own guide advises.

Each has two slots, as the farm has two agents, and stays up between the rounds. What a rank does is
in `benchmarks.jobs.rank_by_hand`; how ranks find each other is each one's own. `python -m
benchmarks.jobs.rivals BROKER_URL NAME` is a Celery worker of one slot.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

from celery import Celery, group

from benchmarks.figures import root
from benchmarks.jobs.makespans import Played
from benchmarks.jobs.rank_by_hand import LIMIT_S, WORLD_SIZE, Work, run_rank
from benchmarks.stopping import stop_group
from farm.broker.celery_app import open_client
from farm.errors import FarmError

_QUEUE, _TASK = "benchmark.ranks", "benchmark.rank"
_MEET_S = 60.0
_LOOK_EVERY_S = 0.01
_STOPPED_WITHIN_S = 5.0


class Contender(Protocol):
    """Whoever runs jobs of two ranks on two slots."""

    def play(self, work: Work, *, first_seed: int, job_count: int) -> Played: ...


class CeleryGroups:
    """A `group` with one task a rank for each job; ranks meet at a list of the same Redis.

    Acknowledged late and prefetching nothing, as Celery's guide has it for long tasks: otherwise a
    worker keeps the second rank of a gang in its hands while it waits in the first.
    """

    def __init__(self, broker_url: str, *, pause: Callable[[float], None]) -> None:
        self._app = make_celery(broker_url)
        self._pause = pause

    def play(self, work: Work, *, first_seed: int, job_count: int) -> Played:
        rank_task = self._app.tasks[_TASK]
        orders = [work.order(rank) for rank in range(WORLD_SIZE)]
        begun_s = time.monotonic()
        sent = [
            group(rank_task.s(order, seed, rank) for rank, order in enumerate(orders)).apply_async()
            for seed in range(first_seed, first_seed + job_count)
        ]
        steps = tuple(max(self._wait_for(gang, LIMIT_S * job_count)) for gang in sent)
        return Played(time.monotonic() - begun_s, steps)

    def _wait_for(self, gang: Any, within_s: float) -> list[float]:
        # Celery calls this once a second, between two waits for a message of Redis's.
        found: list[float] = gang.get(timeout=within_s, on_interval=lambda: self._pause(0))
        return found


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
def celery_groups(
    broker_url: str, folder: Path, *, pause: Callable[[float], None]
) -> Iterator[CeleryGroups]:
    """Run two workers of one slot each, on a Redis that is there."""
    with ExitStack() as stack:
        for number in range(WORLD_SIZE):
            command = [
                sys.executable,
                "-P",
                "-m",
                "benchmarks.jobs.rivals",
                broker_url,
                f"slot-{number}",
            ]
            with (folder / f"celery-{number}.log").open("wb") as log:
                worker = subprocess.Popen(
                    command, cwd=root(), stdout=log, stderr=log, process_group=0
                )
            stack.callback(stop_group, worker, within_s=_STOPPED_WITHIN_S)
        yield CeleryGroups(broker_url, pause=pause)


class DaskTasks:
    """One task a rank; ranks meet at queues of Dask's own.

    Each worker has one thread and is handed nothing before that is free, or the second rank of a
    gang may wait behind the first on the same one.
    """

    def __init__(self, client: Any, *, pause: Callable[[float], None]) -> None:
        self._client = client
        self._pause = pause

    def play(self, work: Work, *, first_seed: int, job_count: int) -> Played:
        orders = [work.order(rank) for rank in range(WORLD_SIZE)]
        seeds = range(first_seed, first_seed + job_count)
        calls = [(order, seed, rank) for seed in seeds for rank, order in enumerate(orders)]
        begun_s = time.monotonic()
        futures = self._client.map(dask_rank, *zip(*calls, strict=True), pure=False)
        while not all(future.done() for future in futures):
            self._pause(_LOOK_EVERY_S)
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
def dask_tasks(folder: Path, *, pause: Callable[[float], None]) -> Iterator[DaskTasks]:
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
        yield DaskTasks(client, pause=pause)


def main() -> None:
    """Run a Celery worker of one slot until SIGTERM."""
    broker_url, name = sys.argv[1:]
    worker = make_celery(broker_url).Worker(
        hostname=f"{name}@benchmark", queues=[_QUEUE], concurrency=1, loglevel="WARNING"
    )
    worker.start()


if __name__ == "__main__":
    main()
