"""Find the processes that undo what an agent has applied, should it be killed."""

from __future__ import annotations

from pathlib import Path

from worker_agent.network import watchdog


def watchdogs(state_dir: Path) -> list[int]:
    """Return the ids of those that guard what the agent of this directory has applied."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if watchdog.__file__.encode() in words and str(state_dir).encode() in words:
            found.append(int(entry.name))
    return found
