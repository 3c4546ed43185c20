"""What the end of a trainer process means, and the evidence for it."""

from __future__ import annotations

import signal
from pathlib import Path

from farm.core.trainer_lines import Failure, FailureKind


def explain_exit(
    return_code: int, *, oom_kills: int | None, is_connecting: bool = False
) -> Failure:
    """Explain a trainer that went without a result or a reason of its own.

    `return_code` is negative for a signal. `oom_kills`: how often the kernel killed for want of
    memory since the trainer began, None if nobody counts. A SIGKILL without that evidence stays
    unexplained: somebody or something else may have sent it, so the machine is to blame. A trainer
    that leaves while it connects (`is_connecting`) has waited in vain for a peer: a watchdog ends
    it then, since the framework's own constructor cannot be interrupted and says nothing.
    """
    if return_code >= 0 and is_connecting:
        return Failure(
            kind=FailureKind.PEER_LOST,
            message=f"trainer could not connect to its peers and left with status {return_code}",
        )
    if return_code >= 0:
        return Failure(
            kind=FailureKind.TRAINER_RAISED,
            message=f"trainer ended with exit status {return_code} and without a result",
        )
    name = _signal_name(-return_code)
    if -return_code == signal.SIGKILL and oom_kills:
        return Failure(
            kind=FailureKind.OUT_OF_MEMORY,
            message=f"the kernel killed the trainer for want of memory ({name})",
        )
    return Failure(kind=FailureKind.KILLED, message=f"trainer was ended by {name}")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def read_oom_kills(
    *, cgroup: Path = Path("/proc/self/cgroup"), mount: Path = Path("/sys/fs/cgroup")
) -> int | None:
    """Return how many processes of this control group the kernel killed for want of memory.

    The trainers are in the agent's own group. Version 2 is tried first, then version 1; where
    neither counts, as in the root group, the machine's own counter has to do.
    """
    for source in (_v2_events(cgroup, mount), _v1_control(cgroup, mount), Path("/proc/vmstat")):
        count = _counter(source, "oom_kill") if source is not None else None
        if count is not None:
            return count
    return None


def _v2_events(cgroup: Path, mount: Path) -> Path | None:
    for line in _lines(cgroup):
        if line.startswith("0::/"):
            return mount / line[4:] / "memory.events"
    return None


def _v1_control(cgroup: Path, mount: Path) -> Path | None:
    for line in _lines(cgroup):
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return mount / "memory" / path.lstrip("/") / "memory.oom_control"
    return None


def _counter(file: Path, name: str) -> int | None:
    for line in _lines(file):
        key, _, value = line.partition(" ")
        if key == name and value.isdigit():
            return int(value)
    return None


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []
