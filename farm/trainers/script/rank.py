"""One rank that runs a script of a user's own: from its assignment to its result.

The script runs in a process of its own, by `benchfarm.run`, which marks every step on a pipe. This
process waits for the marks and tells the agent of the steps between them, as the farm's own loop
does. The first mark only starts the clock: what came before it is start-up. After the last one the
script waits until the counters are read, and ends.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import math
import os
import re
import resource
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

import benchfarm
from benchfarm.marks import FD_VARIABLE, GO_ON_VARIABLE, LAST_MARK_VARIABLE
from farm.configuration.axes import AXES, spec_values
from farm.configuration.scripts import (
    PER_RANK,
    bundle_of,
    examples_per_epoch,
    python_of,
    script_of,
    variables_of,
    version_of,
    words_of,
)
from farm.messages.trainer_lines import (
    Assignment,
    DatasetSource,
    FailureKind,
    GoLine,
    Progress,
    Ready,
    Started,
    StepKind,
    TrainerResult,
)
from farm.processes.tcp_connections import socket_inodes, tcp_connections
from farm.sampling.byte_count import ByteCount
from farm.trainers.failures import RankFailed, kind_of
from farm.trainers.loop.recorder import SEND_INTERVAL_S, StepRecorder
from farm.trainers.loop.window import TimedWindow
from farm.trainers.processes.installed_file import NotInstalled, read_installed
from farm.trainers.processes.line import EventWriter
from farm.trainers.processes.process import Orders
from farm.trainers.script.launchers import ScriptLauncher
from farm.values.codec import from_text

logger = logging.getLogger(__name__)

# Importing a framework, loading data and compiling may take so long without a mark.
_MOST_START_UP_S = 900.0
# While steps are timed their marks are read in portions of so long: to wake up for each would take
# some hundredths of a short step from the script, whose core this process shares.
_GATHER_S = 0.05
# A script that makes no step for so long tells where its threads are, once.
_SILENT_S = 60.0
# After its last mark a script may clean up for so long.
_GRACE_S = 10.0
_TRACEBACK = "Traceback (most recent call last)"
_EXCEPTION = 1  # Python's status after one that nobody caught, and of sys.exit("text")
_MOST_BYTES = 2**20  # of the script itself
_TAIL_BYTES = 1 << 16
_MOST_LINE_BYTES = 1 << 16  # of a mark, which has 150
_SHOWN_CHARACTERS = 500
# PyTorch's own hook writes it before each line of a traceback.
_OF_RANK = re.compile(r"^\[rank\d+\]:\s?")
_RAISED = re.compile(r"(?P<name>[A-Za-z_][\w.]*): (?P<text>.*)|(?P<bare>[A-Z]\w*(Error|Exception))")


@dataclass(frozen=True, slots=True)
class StepMark:
    """The end of a step, in seconds of CLOCK_MONOTONIC, with what the script has said of it."""

    number: int
    at_s: float
    loss: float | None
    parameter_count: int | None = None
    parameter_bytes: int | None = None


def run_script(
    assignment: Assignment, launcher: ScriptLauncher, *, line: EventWriter, orders: Orders
) -> None:
    """Report ready, wait for go, run the script, and report the result.

    Raises:
        RankFailed: the script is not here, ended too early, failed, or said that its loss is no
            number.
    """
    job = assignment.job
    script, sha256 = _read(assignment)
    source = DatasetSource(
        name=job.dataset,
        origin="the script's own",
        sha256=sha256,
        is_synthetic=False,
        train_examples_count=examples_per_epoch(job.dataset) or 0,
        test_examples_count=0,
    )
    line.emit(
        Ready(
            import_s=0.0,
            framework=launcher.framework(assignment.python),
            dataset=source,
            model_sha256=sha256,
        )
    )
    go = from_text(GoLine, orders.next_line(timeout_s=job.time_limit_s))
    if _read(assignment) != (script, sha256):
        problem = f"script {script.name}: it has changed since this rank was ready"
        raise RankFailed(FailureKind.MODEL_MISSING, problem)
    with _own_folder(assignment) as name, _own_folder(assignment) as hooks:
        folder = Path(name)
        script = _placed(script, job.model, folder)
        Path(hooks, "benchfarm").symlink_to(Path(benchfarm.__file__).parent)
        running = RunningScript(
            assignment, launcher, go, script=script, folder=folder, hooks=Path(hooks)
        )
        try:
            line.emit(_watch(assignment, running, line))
        finally:
            running.end()


def _read(assignment: Assignment) -> tuple[Path, str]:
    name = f"script {script_of(assignment.job.model)}"
    if assignment.script is None:
        problem = f"{name}: it is not among this agent's; see AGENT_SCRIPT_DIR and AGENT_SCRIPTS"
        raise RankFailed(FailureKind.MODEL_MISSING, problem)
    python = python_of(assignment.job.model)
    if python is not None and assignment.python is None:
        problem = f"{name}: this agent has no interpreter {python}; see AGENT_PYTHON_ENVIRONMENTS"
        raise RankFailed(FailureKind.MODEL_MISSING, problem)
    path = Path(assignment.script)
    try:
        content = read_installed(path, most_bytes=_MOST_BYTES, agent_uid=assignment.agent_uid)
    except NotInstalled as error:
        raise RankFailed(FailureKind.MODEL_MISSING, f"{name}: {error}") from None
    sha256 = hashlib.sha256(content).hexdigest()
    version = version_of(assignment.job.model)
    # The version of a bundle is the whole archive's, which the agent has compared.
    if bundle_of(assignment.job.model) is None and not sha256.startswith(version):
        problem = f"{name}: expected a sha256 that begins with {version}, got {sha256}"
        raise RankFailed(FailureKind.MODEL_MISSING, problem)
    return path, sha256


def _own_folder(assignment: Assignment) -> tempfile.TemporaryDirectory[str]:
    """Make a folder for the script; the agent removes what a killed trainer leaves."""
    prefix = None if assignment.folder_prefix is None else Path(assignment.folder_prefix)
    return tempfile.TemporaryDirectory(
        prefix=None if prefix is None else prefix.name,
        dir=None if prefix is None else prefix.parent,
        ignore_cleanup_errors=True,
    )


def _placed(script: Path, model: str, folder: Path) -> Path:
    """Copy a bundle into the folder that its script may write; return where the script is."""
    name = script_of(model)
    if bundle_of(model) is None or name is None:
        return script
    root = script.parents[name.count("/")]
    shutil.copytree(root, folder, copy_function=shutil.copyfile, dirs_exist_ok=True)
    return folder / name


def _values_of(assignment: Assignment) -> dict[str, object]:
    """Return what placeholders stand for on this rank."""
    job = assignment.job
    values = spec_values(job)
    filled: dict[str, object] = {axis.name: axis.address(values[axis.field]) for axis in AXES}
    filled |= {
        PER_RANK: job.global_batch_size // job.world_size,
        "rank": assignment.rank,
        "seed": job.seed,
        "data_dir": assignment.data_dir or "",
    }
    return filled


class RunningScript:
    """The script's process, its marks and its output. It owns the process; `end` kills it."""

    def __init__(
        self,
        assignment: Assignment,
        launcher: ScriptLauncher,
        go: GoLine,
        *,
        script: Path,
        folder: Path,
        hooks: Path,
    ) -> None:
        """Start it in the folder. `hooks`: where another interpreter finds `benchfarm`."""
        assert assignment.job.steps is not None
        self.name = f"script {script_of(assignment.job.model)}"
        # The first starts the clock.
        self.mark_count = 1 + assignment.job.warmup_step_count + assignment.job.steps
        self._marks, its_marks = os.pipe()
        its_go_on, self._go_on = os.pipe()
        model, values = assignment.job.model, _values_of(assignment)
        environment = {
            **os.environ,
            **variables_of(model, values),
            **launcher.environment(assignment, go),
            FD_VARIABLE: str(its_marks),
            GO_ON_VARIABLE: str(its_go_on),
            LAST_MARK_VARIABLE: str(self.mark_count),
        }
        if assignment.python is not None:
            environment["PYTHONPATH"] = str(hooks)
            environment.pop("VIRTUAL_ENV", None)
        python = assignment.python or sys.executable
        self.started_s = time.monotonic()
        self._process = subprocess.Popen(
            [python, "-m", "benchfarm.run", str(script), *words_of(model, values)],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(its_marks, its_go_on),
        )
        os.close(its_marks)
        os.close(its_go_on)
        self.gather_s = 0.0  # how long to let marks gather before they are read
        self._tail = b""
        self._reader = threading.Thread(target=self._read_output, name="output", daemon=True)
        self._reader.start()

    def marks(self, *, wait_s: float) -> Iterator[StepMark | None]:
        """Yield marks as they come, None after each pause of `wait_s`, until the script ends."""
        buffer = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._marks, selectors.EVENT_READ)
            while True:
                if not selector.select(wait_s):
                    yield None
                    continue
                time.sleep(self.gather_s)
                chunk = os.read(self._marks, 1 << 16)
                *lines, buffer = (buffer + chunk).split(b"\n")
                if not chunk or len(buffer) > _MOST_LINE_BYTES:
                    return
                for text in lines:
                    yield _mark(text)

    def connections(self) -> Mapping[int, ByteCount] | None:
        """Return what the connections of its processes have carried, by socket."""
        try:
            known = tcp_connections()
        except OSError:
            return None
        own = {inode for process in self._tree() for inode in socket_inodes(process.pid)}
        return {inode: count for inode, count in known.items() if inode in own}

    def cpu_s(self) -> float:
        """Return the processor time of its processes, and of those that they have waited for."""
        total_s = 0.0
        for process in self._tree():
            try:
                times = process.cpu_times()
            except psutil.Error:
                continue
            # Those of its children that have ended, too.
            total_s += times.user + times.system + times.children_user + times.children_system
        return total_s

    def tell_stacks(self) -> None:
        """Have it write where its threads are into its output."""
        self._process.send_signal(signal.SIGUSR2)

    def let_go(self) -> None:
        """Let it end after its last mark."""
        self._go_on = _closed(self._go_on)

    def wait(self, *, timeout_s: float) -> int | None:
        """Return its status as `subprocess` has it; None: it goes on."""
        try:
            return self._process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def end(self) -> None:
        """Kill it if it lives, and release its pipes; its children are the agent's to find."""
        self._process.kill()
        self._process.wait()
        self._reader.join(timeout=2)
        self.let_go()
        self._marks = _closed(self._marks)

    def failure(self, mark_count: int, *, status: int, world_size: int) -> RankFailed:
        """Say why it ended before its last step."""
        self._reader.join(timeout=2)
        lines = self._tail.decode(errors="replace").splitlines()
        said = [text for line in lines if (text := _OF_RANK.sub("", line).rstrip())]
        last = said[-1].strip()[:_SHOWN_CHARACTERS] if said else "it wrote nothing"
        raised = _raised(said) if status == _EXCEPTION else None
        if status == 0 and mark_count == 0:
            problem = "ended without a step: call benchfarm.step() once after each"
        elif status == 0:
            wanted = self.mark_count
            problem = f"ended after {mark_count} of {wanted} steps; ask for fewer, or let it go on"
        elif raised is not None:
            name = (raised["name"] or raised["bare"]).rpartition(".")[2]
            kind = kind_of(name, raised["text"] or "", world_size=world_size)
            return RankFailed(kind, f"{self.name}: {raised[0][:_SHOWN_CHARACTERS]}")
        else:
            problem = f"ended with status {status}: {last}"
        return RankFailed(FailureKind.TRAINER_RAISED, f"{self.name}: {problem}")

    def _tree(self) -> list[psutil.Process]:
        try:
            root = psutil.Process(self._process.pid)
            return [root, *root.children(recursive=True)]
        except psutil.Error:
            return []

    def _read_output(self) -> None:
        assert self._process.stdout is not None
        while chunk := os.read(self._process.stdout.fileno(), 1 << 16):
            sys.stderr.buffer.write(chunk)
            sys.stderr.buffer.flush()
            self._tail = (self._tail + chunk)[-_TAIL_BYTES:]


def _raised(said: Sequence[str]) -> re.Match[str] | None:
    """Return the line that names an exception: the last that is not indented after a traceback.

    More of its message, or warnings, may follow.
    """
    begins = [i for i, text in enumerate(said) if text.startswith(_TRACEBACK)]
    after = said[begins[-1] + 1 :] if begins else said[-1:]
    return next(filter(None, map(_RAISED.fullmatch, after)), None)


def _closed(descriptor: int) -> int:
    if descriptor >= 0:
        os.close(descriptor)
    return -1


def _mark(text: bytes) -> StepMark:
    try:
        told = json.loads(text)
        loss = told["loss"]
        count, byte_count = map(_natural, told.get("size") or (None, None))
        return StepMark(
            number=int(told["mark"]),
            at_s=float(told["monotonic_s"]),
            loss=None if loss is None else float(loss),
            parameter_count=count,
            parameter_bytes=byte_count,
        )
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return StepMark(number=0, at_s=0.0, loss=None)  # in no order


def _natural(value: object) -> int | None:
    return value if isinstance(value, int) and 0 < value < 2**53 else None


def _watch(assignment: Assignment, running: RunningScript, line: EventWriter) -> TrainerResult:
    """Follow the script to its last mark and return the result, unsent."""
    job = assignment.job
    window = TimedWindow(assignment.interface, connections=running.connections, cpu_s=running.cpu_s)
    recorder = StepRecorder(line)
    previous_s, silent_since_s, is_told = 0.0, time.monotonic(), False
    mark_count, loss = 0, None
    for mark in running.marks(wait_s=SEND_INTERVAL_S):
        if mark is None:
            silent_s = time.monotonic() - silent_since_s
            if mark_count == 0 and silent_s < _MOST_START_UP_S:
                line.emit(Progress(step_count=0))
            if silent_s > _SILENT_S and not is_told:
                is_told = True
                running.tell_stacks()
            continue
        if mark.number != mark_count + 1 or not previous_s < mark.at_s <= time.monotonic():
            problem = f"{running.name}: its steps are not in order; only benchfarm may mark them"
            raise RankFailed(FailureKind.TRAINER_RAISED, problem)
        mark_count, silent_since_s, is_told = mark.number, time.monotonic(), False
        if mark.loss is not None and not math.isfinite(mark.loss):
            problem = f"{running.name}: loss: expected a finite number, got {mark.loss}"
            raise RankFailed(FailureKind.NOT_A_NUMBER, problem)
        loss = loss if mark.loss is None else mark.loss
        if mark_count == 1:
            running.connections()  # the first reading takes far longer than those that count
            running.cpu_s()
            line.emit(
                Started(
                    parameter_count=mark.parameter_count,
                    gradient_bytes=mark.parameter_bytes,
                    connect_s=0.0,
                    first_step_s=mark.at_s - running.started_s,
                )
            )
        else:
            is_warm_up = mark_count <= 1 + job.warmup_step_count
            kind = StepKind.WARMUP if is_warm_up else StepKind.TIMED
            recorder.add(kind, begun_s=previous_s, time_s=mark.at_s - previous_s)
        previous_s = mark.at_s
        if mark_count == 1 + job.warmup_step_count:
            window.open(mark.at_s)
            running.gather_s = _GATHER_S
            recorder.flush()
        if mark_count == running.mark_count:
            window.stop(mark.at_s)
            window.close()
            running.let_go()
            break
    else:
        _raise_early_end(running, mark_count, world_size=job.world_size)
    recorder.flush()
    if running.wait(timeout_s=_GRACE_S) is None:
        logger.warning("%s went on after its last step, and is killed", running.name)
        running.end()
    return _result(assignment, window, loss=loss)


def _raise_early_end(running: RunningScript, mark_count: int, *, world_size: int) -> None:
    status = running.wait(timeout_s=_GRACE_S)
    if status is None:
        problem = f"{running.name}: closed the pipe of its steps and went on"
        raise RankFailed(FailureKind.TRAINER_RAISED, problem)
    if status < 0:
        # End by the same signal: the agent looks for the cause, such as memory that ran out.
        with contextlib.suppress(OSError):  # of SIGKILL there is nothing to set
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    raise running.failure(mark_count, status=status, world_size=world_size)


def _result(assignment: Assignment, window: TimedWindow, *, loss: float | None) -> TrainerResult:
    job = assignment.job
    assert job.steps is not None
    return TrainerResult(
        **window.figures(),
        timed_step_count=job.steps,
        window_step_count=job.steps,
        train_loss=loss,
        val_accuracy_ratio=None,
        peak_resident_bytes=resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024,
        seed=job.seed,
        details=window.details(len(assignment.cpus)),
    )
