"""Real processes in a real control group that run out of memory: what the kernel says of it."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from farm.messages.agents import AgentFacts
from farm.messages.trainer_lines import Failure, FailureKind
from farm.values.codec import from_json
from tests.machine.memory_group import LimitedGroup, limited_group
from worker_agent.rank.memory_evidence import KernelLog, MemoryMonitor, kernel_log_path
from worker_agent.rank.rank_end import (
    failure_of_data_workers,
    failure_of_exit,
    lost_data_workers,
)

pytestmark = pytest.mark.root

LIMIT_BYTES = 64 << 20
# Says that it lives and waits; with a line of input it takes more than the group may have.
HUNGRY = "import sys; print('up', flush=True); sys.stdin.readline(); held = b'x' * (256 << 20)"
# Does the same in a process that PyTorch starts to load batches, and tells its failure.
HUNGRY_WORKER = """
import json
import sys
from pathlib import Path
from torch.utils.data import DataLoader
from farm.trainers.failures import failure_of
from farm.values.codec import to_json

class Examples:
    def __len__(self):
        return 1

    def __getitem__(self, index):
        Path("/proc/self/oom_score_adj").write_text("1000")  # not the trainer
        return len(b"x" * (2 << 30))

print("up", flush=True)
sys.stdin.readline()
try:
    next(iter(DataLoader(Examples(), num_workers=1)))
except RuntimeError as error:
    print(json.dumps(to_json(failure_of(error, world_size=1))), flush=True)
"""


@pytest.fixture
def group() -> Iterator[LimitedGroup]:
    with limited_group(LIMIT_BYTES) as group:
        yield group


@pytest.fixture
def start(group: LimitedGroup) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Starts processes in the group that wait for a word to run out of memory."""
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-S", "-c", HUNGRY], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        started.append(process)
        group.take(process.pid)
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate(timeout=60)


def feed(process: subprocess.Popen[bytes]) -> None:
    """Let it allocate, and wait for what becomes of it."""
    assert process.stdin is not None
    process.stdin.write(b"go\n")
    process.stdin.flush()
    assert process.wait(timeout=30) == -signal.SIGKILL


def failure_of(process: subprocess.Popen[bytes], monitor: MemoryMonitor) -> Failure:
    return failure_of_exit(process.returncode, memory=monitor.evidence(process.pid))


@pytest.mark.parametrize("is_log_readable", [True, False], ids=["log", "counter"])
def test_a_process_that_outgrows_its_group_is_out_of_memory(
    start: Callable[[], subprocess.Popen[bytes]], is_log_readable: bool
) -> None:
    path = kernel_log_path()
    if is_log_readable and path is None:
        pytest.skip("the kernel's log is not of this process namespace")
    process = start()
    monitor = MemoryMonitor(log=KernelLog(path if is_log_readable else None))
    monitor.look([process.pid])
    feed(process)
    failure = failure_of(process, monitor)
    monitor.close()
    assert failure.kind is FailureKind.OUT_OF_MEMORY
    source = "the kernel's log" if is_log_readable else "the counter of its control group"
    assert failure.message.startswith(
        f"killed by the kernel for lack of memory (by {source}): the control group's limit is"
        " 67.1 MB, its peak was 67.1 MB"
    )


@pytest.mark.torch
def test_a_data_worker_that_outgrows_its_group_is_out_of_memory() -> None:
    with (
        limited_group(512 << 20) as group,
        subprocess.Popen(
            [sys.executable, "-c", HUNGRY_WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as trainer,
    ):
        assert trainer.stdout is not None
        assert trainer.stdout.readline() == b"up\n"
        group.take(trainer.pid)
        monitor = MemoryMonitor()
        monitor.look([trainer.pid])
        output, _ = trainer.communicate(b"go\n", timeout=120)
        reported = from_json(Failure, json.loads(output))
        assert reported.kind is FailureKind.TRAINER_RAISED
        pids = lost_data_workers(reported)
        failure = failure_of_data_workers(
            reported, memory=monitor.evidence(trainer.pid, children=pids)
        )
        monitor.close()
    assert failure.kind is FailureKind.OUT_OF_MEMORY
    assert "the control group's limit is 537 MB" in failure.message


def test_a_kill_beside_one_that_ran_out_of_memory_stays_unexplained(
    start: Callable[[], subprocess.Popen[bytes]],
) -> None:
    path = kernel_log_path()
    if path is None:
        pytest.skip("the kernel's log is not of this process namespace")
    ours, other = start(), start()
    monitor = MemoryMonitor()
    monitor.look([ours.pid])
    feed(other)
    ours.kill()
    ours.wait(timeout=60)
    failure = failure_of(ours, monitor)
    monitor.close()
    assert failure.kind is FailureKind.KILLED
    assert failure.message.endswith("but other processes")


def test_the_agent_of_a_limited_group_has_the_memory_of_its_limit(tmp_path: Path) -> None:
    with limited_group(1500 << 20) as group:
        done = subprocess.run(
            [sys.executable, "-m", "worker_agent", "--check"],
            preexec_fn=lambda: group.take(os.getpid()),
            env={**os.environ, "AGENT_STATE_DIR": str(tmp_path), "AGENT_CLOUD": "never"},
            capture_output=True,
            text=True,
            check=True,
        )
    facts = from_json(AgentFacts, json.loads(done.stdout))
    assert facts.hardware.memory_bytes == 1500 << 20
    machines = dataclasses.replace(facts.hardware, memory_bytes=psutil.virtual_memory().total)
    assert facts.hardware.fingerprint != machines.fingerprint
