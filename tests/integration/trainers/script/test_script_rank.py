"""Ranks that run a user's own script, as their agents see them: real processes, real scripts."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import sys
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from farm.configuration.spec import JobSpec
from farm.messages.trainer_lines import (
    Assignment,
    Epoch,
    Failure,
    FailureKind,
    Ready,
    ScriptTimes,
    Started,
    StepKind,
    TrainerResult,
)
from farm.submission import plan
from farm.trainers.all_reduce import ring_all_reduce
from farm.trainers.script.process import PROFILED_STEP_COUNT
from tests.integration.trainer_process import TrainerProcess, go, results

STEPS, WARMUP_STEPS = 12, 3

CPUS = sorted(os.sched_getaffinity(0))
PLAIN = """
import sys, time
import benchfarm
words = sys.argv[1:]
print("words", words, flush=True)
for i in range(1_000_000):
    begun = time.monotonic()
    while time.monotonic() < begun + 0.005:
        pass
    benchfarm.step(examples=4, loss=1 / (i + 1))
"""
DDP = """
import argparse, os, time
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, required=True)
parser.add_argument("--hidden", type=int, default=256)
given = parser.parse_args()
dist.init_process_group("gloo")
hidden = given.hidden
model = DistributedDataParallel(
    torch.nn.Sequential(torch.nn.Linear(256, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 10))
)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
while True:
    x, y = torch.randn(given.batch_size, 256), torch.randint(0, 10, (given.batch_size,))
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def job_of(script: str = "train.py", **case: Any) -> JobSpec:
    """Return the only job of a sweep of that case."""
    given = {
        **{"script": script, "launcher": "none", "world_size": 1, "global_batch_size": 8},
        **{"steps": STEPS, "warmup_steps": WARMUP_STEPS, **case},
    }
    [job] = plan({"name": "scripts", "case": [given]}).expansion.jobs
    return job


@contextlib.contextmanager
def ranks(
    job: JobSpec, source: str, folder: Path, *, python: Path | None = None, **given: Any
) -> Iterator[list[TrainerProcess]]:
    """Start every rank of a script, which may begin."""
    script = folder / "train.py"
    script.write_text(source)
    cpus = sorted(os.sched_getaffinity(0))
    with contextlib.ExitStack() as stack:
        trainers = []
        for rank in range(job.world_size):
            trainer = stack.enter_context(TrainerProcess(folder / f"rank{rank}.log"))
            cpu = (cpus[rank % len(cpus)],)
            own = None if python is None else str(python)
            of_rank = {"rank": rank, "cpus": cpu, "script": str(script), "python": own, **given}
            trainer.write(Assignment(job=job, **of_rank))
            trainers.append(trainer)
        for trainer in trainers:
            trainer.wait_for(Ready)
        go(trainers)
        yield trainers


def failure(source: str, folder: Path, **case: Any) -> Failure:
    with ranks(job_of(**case), source, folder) as [trainer]:
        assert trainer.exit_code() != 0
        [found] = [event for event in trainer.arrived() if isinstance(event, Failure)]
    return found


def test_a_script_without_a_framework_is_timed_between_its_marks(tmp_path: Path) -> None:
    job = job_of(args=["--batch", "{per_rank_batch_size}", "{seed}", '{"a": 1}'])
    with ranks(job, PLAIN, tmp_path) as trainers:
        [result] = results(trainers)
        [trainer] = trainers
        assert len(trainer.step_times_s(StepKind.WARMUP)) == WARMUP_STEPS
        times_s = trainer.step_times_s(StepKind.TIMED)
        assert len(times_s) == STEPS == result.timed_step_count
        assert min(times_s) >= 0.005
        assert result.timed_window_s == pytest.approx(sum(times_s), rel=1e-6)
        assert result.train_loss == pytest.approx(1 / (1 + WARMUP_STEPS + STEPS))
        assert trainer.seen(Started)[0].gradient_bytes is None
        assert trainer.exit_code() == 0
        assert "words ['--batch', '8', '0', '{\"a\": 1}']" in trainer.log.read_text()


@pytest.mark.parametrize("gpus", [("GPU-1", "GPU-2"), (), None])
def test_a_rank_sees_the_gpus_that_its_agent_gives_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpus: tuple[str, ...] | None
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    source = PLAIN.replace(
        "print(", "import os\nprint('<' + os.environ['CUDA_VISIBLE_DEVICES'] + '>', "
    )
    with ranks(job_of(), source, tmp_path, gpus=gpus) as trainers:
        results(trainers)
        seen = "7" if gpus is None else ",".join(gpus)
        assert f"<{seen}> words" in trainers[0].log.read_text()


def test_a_script_may_train_to_its_end_and_tell_how_accurate_each_epoch_got(
    tmp_path: Path,
) -> None:
    source = PLAIN.replace("range(1_000_000)", "range(100)").replace(
        "loss=1 / (i + 1))",
        "loss=1 / (i + 1), accuracy=i / 100 if i % 25 == 24 else None)",
    )
    with ranks(job_of(steps="all"), source, tmp_path) as [trainer]:
        [result] = results([trainer])
        assert len(trainer.step_times_s(StepKind.WARMUP)) == WARMUP_STEPS
        times_s = trainer.step_times_s(StepKind.TIMED)
        epochs = trainer.seen(Epoch)
    assert len(times_s) == result.timed_step_count == 100 - 1 - WARMUP_STEPS
    assert [epoch.epoch for epoch in epochs] == [0, 1, 2, 3]
    assert [epoch.val_accuracy_ratio for epoch in epochs] == [0.24, 0.49, 0.74, 0.99]
    assert all(epoch.step_count == 25 and 24 * 0.005 <= epoch.train_s < 1 for epoch in epochs)
    assert result.val_accuracy_ratio == 0.99
    assert result.train_loss == pytest.approx(0.01)
    # The counters are read every tenth of the time, and count up to the last reading.
    assert 0.8 * len(times_s) <= result.window_step_count <= len(times_s)
    counted_s = sum(times_s[: result.window_step_count])
    assert result.timed_window_s == pytest.approx(counted_s, rel=1e-6)
    assert result.script_times == ScriptTimes(
        pause_s=0.0, data_wait_s=None, examples_count=4 * 96, epoch_count=4, steps_per_epoch=25
    )


def test_what_trains_to_its_end_has_to_come_to_timed_steps(tmp_path: Path) -> None:
    source = PLAIN.replace("range(1_000_000)", f"range({1 + WARMUP_STEPS})")
    found = failure(source, tmp_path, steps="all")
    assert f"ended after {1 + WARMUP_STEPS} of {2 + WARMUP_STEPS} steps" in found.message


@pytest.mark.torch
def test_waiting_for_a_data_loader_is_told_apart(tmp_path: Path) -> None:
    source = """
import time, torch
class Slow(torch.utils.data.IterableDataset):
    def __iter__(self):
        while True:
            time.sleep(0.02)
            yield torch.zeros(1)
weight = torch.nn.Parameter(torch.zeros(1))
optimizer = torch.optim.SGD([weight], 0.1)
for x in torch.utils.data.DataLoader(Slow()):
    time.sleep(0.01)
    optimizer.step()
"""
    with ranks(job_of(launcher="torch"), source, tmp_path) as [trainer]:
        [result] = results([trainer])
    assert result.script_times is not None
    assert result.script_times.data_wait_s is not None
    waited_s = result.script_times.data_wait_s
    assert STEPS * 0.02 <= waited_s <= result.timed_window_s - STEPS * 0.01


def test_another_interpreter_runs_the_script_with_nothing_of_ours_in_it(tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    venv.create(environment, symlinks=True)
    python = environment / "bin/python"
    packages = environment / "lib/python{}.{}/site-packages".format(*sys.version_info[:2])
    (packages / "torch-9.8.7.dist-info").mkdir()
    (packages / "torch-9.8.7.dist-info/METADATA").write_text("Name: torch\nVersion: 9.8.7\n")
    source = PLAIN.replace("print(", "import os\nprint(sys.prefix, os.environ['OWN_MODE'], ")
    checks = (
        "import importlib.util\nassert not importlib.util.find_spec('farm')\n"
        "assert not importlib.util.find_spec('psutil')\n"
    )
    job = job_of(python="own", launcher="torch", environment={"OWN_MODE": "of rank {rank}"})
    with ranks(job, checks + source, tmp_path, python=python) as [trainer]:
        [result] = results([trainer])
        assert trainer.seen(Ready)[0].framework == "torch 9.8.7"
        assert result.timed_step_count == STEPS
        assert f"{environment} of rank 0" in trainer.log.read_text()


def test_an_interpreter_that_the_agent_does_not_have_is_named(tmp_path: Path) -> None:
    job = job_of(python="hf")
    (tmp_path / "train.py").write_text(PLAIN)
    with TrainerProcess(tmp_path / "log") as trainer:
        own = str(tmp_path / "train.py")
        trainer.write(Assignment(job=job, rank=0, cpus=tuple(CPUS[:1]), script=own))
        assert trainer.exit_code() != 0
        [found] = [event for event in trainer.arrived() if isinstance(event, Failure)]
    assert "no interpreter hf" in found.message


@pytest.mark.torch
def test_two_ranks_of_an_unchanged_ddp_script_send_what_a_ring_must(tmp_path: Path) -> None:
    job = job_of(
        launcher="torch",
        args="--batch-size {per_rank_batch_size} --hidden {hidden}",
        parameters={"hidden": 512},
        world_size=2,
        global_batch_size=32,
        steps=60,
    )
    with ranks(job, DDP, tmp_path) as trainers:
        both = results(trainers)
        assert trainers[0].seen(Ready)[0].framework.startswith("torch 2.")
        assert [trainer.exit_code() for trainer in trainers] == [0, 0]
        [first, _] = [trainer.seen(Started)[0] for trainer in trainers]
        assert len(trainers[0].step_times_s(StepKind.PROFILED)) == PROFILED_STEP_COUNT
    gradient_bytes = 4 * (256 * 512 + 512 + 512 * 10 + 10)
    assert (first.parameter_count, first.gradient_bytes) == (gradient_bytes // 4, gradient_bytes)
    theory = ring_all_reduce(2, gradient_bytes)
    for result in both:
        assert result.payload_tx_bytes is not None
        assert result.payload_tx_bytes / 60 == pytest.approx(theory.bytes, rel=0.05)
        profile = result.profile
        assert profile is not None
        assert profile.step_count == PROFILED_STEP_COUNT - 2
        # What a busy machine takes between operations is neither of both.
        assert 0 < profile.compute_s < profile.step_time_s
        assert 0 < profile.communication_s < profile.step_time_s
        assert profile.compute_s + profile.communication_s < 1.3 * profile.step_time_s


@pytest.mark.parametrize(
    ("source", "kind", "message"),
    [
        ("import no_such_module", FailureKind.TRAINER_RAISED, "No module named 'no_such_module'"),
        ("raise MemoryError('no room')", FailureKind.OUT_OF_MEMORY, "no room"),
        ("print('done')", FailureKind.TRAINER_RAISED, "ended without a step: call benchfarm.step"),
        (
            "import benchfarm\nfor i in range(5): benchfarm.step()",
            FailureKind.TRAINER_RAISED,
            "ended after 5 of 16 steps",
        ),
        (
            "import benchfarm\nbenchfarm.step()\nbenchfarm.step(loss=float('nan'))",
            FailureKind.NOT_A_NUMBER,
            "loss: expected a finite number, got nan",
        ),
        (
            "import argparse\nargparse.ArgumentParser().parse_args(['--nope'])",
            FailureKind.TRAINER_RAISED,
            "ended with status 2: train.py: error: unrecognized arguments: --nope",
        ),
        (
            "import benchfarm\nbenchfarm.step()\nbenchfarm.step(accuracy=93.5)",
            FailureKind.TRAINER_RAISED,
            "accuracy: expected a share from 0 to 1, got 93.5",
        ),
        ("import sys; sys.exit('told so')", FailureKind.TRAINER_RAISED, "status 1: told so"),
        (
            "import sys, traceback\n"
            "sys.excepthook = lambda *e: print(*('[rank0]: ' + line for text in "
            "traceback.format_exception(*e) for line in text.splitlines()), 'a warning', "
            "sep='\\n', file=sys.stderr)\n"
            'raise RuntimeError("DefaultCPUAllocator: can\'t allocate memory")',
            FailureKind.OUT_OF_MEMORY,
            "RuntimeError: DefaultCPUAllocator: can't allocate memory",
        ),
    ],
)
def test_a_script_that_fails_says_why_in_one_line(
    source: str, kind: FailureKind, message: str, tmp_path: Path
) -> None:
    found = failure(source, tmp_path)
    assert found.kind is kind
    assert found.message.startswith("script train.py: ")
    assert message in found.message


def test_what_kills_a_script_kills_its_rank(tmp_path: Path) -> None:
    """So that the agent says what it says of a killed trainer: that memory ran out, or not."""
    killed = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"
    with ranks(job_of(), killed, tmp_path) as [trainer]:
        assert trainer.exit_code() == -signal.SIGKILL


def test_the_time_of_processes_that_a_script_has_waited_for_counts(tmp_path: Path) -> None:
    busy = (
        "import subprocess, sys, benchfarm\n"
        "burn = 'import time\\nwhile time.process_time() < 0.2: pass'\n"
        "while True:\n    subprocess.run([sys.executable, '-c', burn])\n    benchfarm.step()"
    )
    with ranks(job_of(steps=6), busy, tmp_path) as trainers:
        [result] = results(trainers)
    ratio = result.details["window_cpu_ratio"]
    assert isinstance(ratio, float)
    assert ratio * result.timed_window_s > 6 * 0.19


@pytest.mark.parametrize(("digits", "runs"), [("right", True), ("0" * 64, False)])
def test_a_script_of_another_version_is_not_run(digits: str, runs: bool, tmp_path: Path) -> None:
    right = hashlib.sha256(PLAIN.encode()).hexdigest()
    job = job_of(script_sha256=right if runs else digits)
    script = tmp_path / "train.py"
    script.write_text(PLAIN)
    with TrainerProcess(tmp_path / "log") as trainer:
        trainer.write(Assignment(job=job, rank=0, cpus=(0,), script=str(script)))
        if runs:
            trainer.wait_for(Ready)
            return
        [found] = [event for event in trainer.arrived() if isinstance(event, Failure)]
    assert found.kind is FailureKind.MODEL_MISSING
    assert "expected a sha256 that begins with 000000000000" in found.message


def test_a_script_that_ignores_its_end_is_measured_all_the_same(tmp_path: Path) -> None:
    stubborn = PLAIN.replace(
        "    benchfarm.step(examples=4, loss=1 / (i + 1))",
        "    try:\n        benchfarm.step()\n    except BaseException:\n        break\n"
        "import os, signal\nsignal.pause()",
    )
    with ranks(job_of(), stubborn, tmp_path) as trainers:
        [result] = results(trainers)
    assert isinstance(result, TrainerResult)


@pytest.mark.parametrize(
    "line",
    [
        b"nonsense\n",
        b'{"mark": 1, "monotonic_s": 1e300, "loss": null}\n',
        b'{"mark": 7, "monotonic_s": 1.0, "loss": null}\n',
        b'{"mark": "x", "monotonic_s": [], "loss": null}\n',
        b'{"mark": 1, "monotonic_s": 1.0, "loss": null, "size": 3}\n',
        b'{"mark": 1, "monotonic_s": 1.0, "loss": null, "accuracy": null, "begun_s": NaN}\n',
        b'{"mark": 1, "monotonic_s": 1.0, "loss": null, "accuracy": null, "data_wait_s": NaN}\n',
        b'{"epoch": [1, 2]}\n',
        b'{"profile": [0.1]}\n',
        b"[" * 5000 + b"\n",
    ],
)
def test_marks_that_a_script_makes_up_are_no_steps(line: bytes, tmp_path: Path) -> None:
    forged = (
        "import os\nfrom benchfarm import marks\n"
        f"os.write(marks.of_this_process._fd, {line!r})\nimport signal; signal.pause()"
    )
    found = failure(forged, tmp_path)
    assert found.kind is FailureKind.TRAINER_RAISED
    assert "its steps are not in order" in found.message


def test_a_script_that_others_can_write_is_not_run(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(PLAIN)
    script.chmod(0o666)
    with TrainerProcess(tmp_path / "log") as trainer:
        trainer.write(Assignment(job=job_of(), rank=0, cpus=(0,), script=str(script)))
        [found] = [event for event in trainer.arrived() if isinstance(event, Failure)]
    assert found.kind is FailureKind.MODEL_MISSING
    assert "can be written by others than its owner" in found.message
