"""Measures the processor time of processes and their descendants, ended ones included."""

from __future__ import annotations

from collections.abc import Iterable

import psutil

from farm.errors import FarmError

_TRIES = 100


def tree_processor_s(process: psutil.Process) -> float:
    """Return the processor seconds of a process and of all below it, ended ones included.

    Whoever has ended is in the time of the parent that waited for it. One that ends between the
    look at its parent and the look at itself would be in neither, and one that ends the other way
    round in both, so what is counted is a look during which nobody came or went.

    Raises:
        FarmError: there was no such moment; they come and go all the time.
        psutil.NoSuchProcess: the process itself has ended.
    """
    for _ in range(_TRIES):
        tree = [process, *process.children(recursive=True)]
        try:
            found_s = processor_s(tree)
        except psutil.NoSuchProcess:
            if not process.is_running():
                raise
            continue
        if tree == [process, *process.children(recursive=True)]:
            return found_s
    raise FarmError(f"the processes below {process.pid} come and go too fast to be counted")


def processor_s(members: Iterable[psutil.Process]) -> float:
    """Return the processor seconds of these, and of what they have started and waited for."""
    times = [member.cpu_times() for member in members]
    return sum(t.user + t.system + t.children_user + t.children_system for t in times)
