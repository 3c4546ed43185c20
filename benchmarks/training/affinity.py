"""Binds the processes of a benchmark's farm to cores, and suspends them."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from farm.errors import FarmError


@dataclass(frozen=True, slots=True)
class FarmProcesses:
    """All of this process's farm, in its parts, parents before their children."""

    server: tuple[psutil.Process, ...]  # scheduler, collector, web
    agents: tuple[psutil.Process, ...]  # with broker clients and templates, and the trainers
    broker: tuple[psutil.Process, ...]

    @property
    def all(self) -> tuple[psutil.Process, ...]:
        return (*self.server, *self.agents, *self.broker)

    def trainers_since(self, idle: FarmProcesses) -> tuple[psutil.Process, ...]:
        """Return what the agents have started since none of them had a rank.

        Raises:
            FarmError: nothing.
        """
        trainers = tuple(process for process in self.agents if process not in idle.agents)
        if not trainers:
            raise FarmError("no agent has started a process since its farm was idle")
        return trainers


def bind_agents() -> None:
    """Bind each agent of this process's farm to its rank's cores.

    Broker clients and templates go with their agent. Trainers are started later and bind
    themselves.
    """
    for child in psutil.Process().children():
        own = child.environ().get("AGENT_CPUS")
        if own:
            for process in (child, *child.children(recursive=True)):
                _bind(process.pid, {int(core) for core in own.split(",")})


def farm_processes(*, all_but: Collection[int] = ()) -> FarmProcesses:
    """Return all that this process has started but these."""
    agents: list[psutil.Process] = []
    server: list[psutil.Process] = []
    broker: list[psutil.Process] = []
    for child in psutil.Process().children():
        if child.pid in all_but:
            continue
        if "redis" in child.name():
            part = broker
        else:
            part = agents if "AGENT_CPUS" in child.environ() else server
        part += (child, *child.children(recursive=True))
    return FarmProcesses(server=tuple(server), agents=tuple(agents), broker=tuple(broker))


@contextmanager
def frozen(processes: Sequence[psutil.Process]) -> Iterator[None]:
    """Stop these processes, parents first; let them go on at the end."""
    # Top down, or a parent would see its child stopped.
    for process in processes:
        _signal(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in reversed(processes):
            _signal(process, signal.SIGCONT)


def _bind(pid: int, cores: set[int]) -> None:
    """Bind all threads: the kernel's call means one, and those to come inherit from theirs."""
    for thread in Path(f"/proc/{pid}/task").glob("*"):
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread.name), cores)


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(number)
