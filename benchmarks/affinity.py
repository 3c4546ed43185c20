"""Where the processes of a benchmark's farm run, and that they stand still."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil


def bind_farm(*, server_cores: Iterable[int]) -> None:
    """Bind each agent of this process's farm to its rank's cores, and all others to these.

    Couriers and templates go with their agent. Trainers, which are started later, bind themselves.
    """
    cores = set(server_cores)
    for child in psutil.Process().children():
        own = child.environ().get("AGENT_CPUS")
        chosen = {int(core) for core in own.split(",")} if own else cores
        for process in (child, *child.children(recursive=True)):
            _bind(process.pid, chosen)


def farm_processes(*, all_but: Collection[int] = ()) -> list[psutil.Process]:
    """Return all that this process has started but these, parents before their children."""
    return [
        process
        for process in psutil.Process().children(recursive=True)
        if process.pid not in all_but
    ]


@contextmanager
def frozen(farm: Sequence[psutil.Process]) -> Iterator[None]:
    """Stop these processes of a farm, parents first; let them go on at the end."""
    # Top down, or a parent would see its child stopped.
    for process in farm:
        _signal(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in reversed(farm):
            _signal(process, signal.SIGCONT)


def _bind(pid: int, cores: set[int]) -> None:
    """Bind all threads: the kernel's call means one, and those to come inherit from theirs."""
    for thread in Path(f"/proc/{pid}/task").glob("*"):
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread.name), cores)


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(number)
