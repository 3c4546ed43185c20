"""Resident memory of an idle agent, without the warm template.

A real agent with nothing to do, its supervisor and its broker client, on a real farm, after some
confirmed heartbeats: the sum of the resident sets of its processes. What they share, such as the
pages of Python itself, is counted in each; their proportional sets, in which it is divided, stand
in the note. The baseline is a bare Celery worker of the same concurrency, one, on the same Redis,
after some tasks: with Celery's default pool that is two processes as well.

The warm template is left out (AGENT_WARM_TRAINERS=false): it is TensorFlow's memory and not ours,
and reported by the agent itself.

Limit: 90 MB (10^6 bytes).
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from benchmarks.figures import BenchmarkFigure, run_benchmark
from benchmarks.jobs.celery_baseline import bare_worker, note_times_s
from benchmarks.live import BenchmarkFarm, running_farm
from farm.errors import FarmError
from farm.store.engine import reading
from farm.store.tables import AgentRow
from farm.text.display import byte_count

LIMIT_BYTES = 90_000_000
_BEATS, _QUICK_BEATS = 10, 3
_TASK_COUNT = 5


@dataclass(frozen=True, slots=True)
class TreeMemory:
    """Of a process and its descendants."""

    process_count: int
    resident_bytes: int
    proportional_bytes: int


def measure(given: argparse.Namespace) -> list[BenchmarkFigure]:
    """Run a farm of one agent, and look at it."""
    settings = {"AGENT_WARM_TRAINERS": "false", "AGENT_HEARTBEAT_S": "1"}
    with (
        TemporaryDirectory(prefix="farm-memory-") as name,
        running_farm(agents=1, settings=settings) as farm,
    ):
        await_beats(farm, count=_QUICK_BEATS if given.quick else _BEATS)
        agent = memory_of(agent_process())
        noted = Path(name) / "noted"
        broker_url = farm.embedded.settings.broker_url
        with bare_worker(broker_url, noted, pool="prefork") as worker:
            note_times_s(broker_url, noted, count=_TASK_COUNT, pause=farm.signals.pause)
            bare = memory_of(psutil.Process(worker.pid))
    return [
        BenchmarkFigure(
            name="idle agent, resident",
            unit="bytes",
            ours=agent.resident_bytes,
            baseline=bare.resident_bytes,
            against="bare Celery worker",
            limit=f"at most {byte_count(LIMIT_BYTES)}",
            reached=agent.resident_bytes <= LIMIT_BYTES,
            note=f"{agent.process_count} processes, {byte_count(agent.proportional_bytes)} "
            f"proportional; Celery's {bare.process_count}, "
            f"{byte_count(bare.proportional_bytes)}",
        )
    ]


def await_beats(farm: BenchmarkFarm, *, count: int) -> None:
    """Wait until the store has seen that many heartbeats of the agent."""

    def has_beaten() -> bool:
        with reading(farm.engine) as session:
            agent = session.get(AgentRow, farm.embedded.agent_ids[0])
            return agent is not None and agent.beat_counter >= count

    farm.wait_for(has_beaten, f"{count} heartbeats", within_s=60)


def agent_process() -> psutil.Process:
    """Return the one agent that this process's farm has started."""
    for child in psutil.Process().children():
        if "worker_agent" in child.cmdline():
            return child
    raise FarmError("there is no agent among this process's children")


def memory_of(process: psutil.Process) -> TreeMemory:
    """Read the memory of a process and everything below it."""
    tree = [process, *process.children(recursive=True)]
    memories = [member.memory_full_info() for member in tree]
    return TreeMemory(
        process_count=len(tree),
        resident_bytes=sum(memory.rss for memory in memories),
        proportional_bytes=sum(memory.pss for memory in memories),
    )


if __name__ == "__main__":
    sys.exit(run_benchmark(__doc__, measure))
