"""Runs one rank of a user's own script, from its assignment to its result."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import logging
import math
import os
import resource
import shutil
import signal
import statistics
import tempfile
import time
from array import array
from collections.abc import Iterator
from pathlib import Path

import benchfarm
from farm.configuration.bundle import MOST_SCRIPT_BYTES
from farm.configuration.scripts import (
    bundle_of,
    examples_per_epoch,
    python_of,
    script_of,
    version_of,
)
from farm.messages.rank_limits import MOST_SCRIPT_EPOCHS
from farm.messages.trainer_lines import (
    PAUSE_MEDIANS,
    SCRIPT_TIMES,
    Assignment,
    DatasetSource,
    Epoch,
    FailureKind,
    GoLine,
    Progress,
    Ready,
    ScriptTimes,
    Started,
    StepKind,
    StepProfile,
    TrainerResult,
)
from farm.trainers.failures import RankFailed
from farm.trainers.loop.recorder import SEND_INTERVAL_S, StepRecorder
from farm.trainers.loop.step_profile import step_profile
from farm.trainers.loop.window import TimedWindow
from farm.trainers.processes.installed_file import NotInstalled, read_installed
from farm.trainers.processes.process import EventWriter, Orders
from farm.trainers.script.launchers import ScriptLauncher
from farm.trainers.script.process import (
    PROFILED_STEP_COUNT,
    EpochMark,
    ProfileMark,
    ScriptMark,
    ScriptProcess,
    StepMark,
)
from farm.values.codec import from_text, to_json
from farm.values.ranges import MOST_TIME_S

logger = logging.getLogger(__name__)

# Importing a framework, loading data and compiling may take so long without a mark.
_MOST_START_UP_S = 900.0
# While steps are timed their marks are read in portions of so long. To wake up takes 0.3 ms of the
# core that this process shares with the script: 20 times a second, every other step felt it.
_GATHER_S = 0.25
# A script that makes no step for so long tells where its threads are, once.
_SILENT_S = 60.0
# After its last mark a script may clean up for so long.
_GRACE_S = 10.0
# Profiled steps may take so long, their profiler's start and end included.
_MOST_PROFILE_S = 30.0
# Of a script that trains to its end the counters are read so often, and before that after each
# tenth of its time.
_READING_S = 1.0
_READING_SHARE = 0.1


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
        process = ScriptProcess(
            assignment, launcher, go, script=script, folder=folder, hooks=Path(hooks)
        )
        try:
            line.emit(_ScriptWatch(assignment, process, line).follow())
        finally:
            process.end()


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
        content = read_installed(path, most_bytes=MOST_SCRIPT_BYTES, agent_uid=assignment.agent_uid)
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


class _ScriptWatch:
    """Follows the marks of a script from the first to the result, and reports its steps.

    The first mark only starts the clock: what came before it is start-up. Where the number of steps
    is given, the script waits after the last one until the counters are read, and ends. A script
    that trains to its own end has no known last step: its counters are read every second, and the
    last reading counts.
    """

    def __init__(self, assignment: Assignment, process: ScriptProcess, line: EventWriter) -> None:
        self._job = assignment.job
        self._core_count = len(assignment.cpus)
        self._process = process
        self._line = line
        self._recorder = StepRecorder(line)
        self._window = TimedWindow(
            assignment.interface, connections=process.connections, cpu_s=process.cpu_s
        )
        self._profile: StepProfile | None = None
        self._silent_since_s = time.monotonic()
        self._has_told_stacks = False
        self._last = StepMark(number=0, at_s=0.0)
        self._loss: float | None = None
        self._accuracy: float | None = None
        # Of the timed steps.
        self._timed_count = 0
        self._pause_s = 0.0
        self._examples_count: int | None = 0  # None: not every step has told
        self._times_s = array("d")
        self._data_waits_s = array("d")  # within each of these
        # Of the current epoch; how many are complete.
        self._first_step_s = 0.0
        self._epoch_steps = 0
        self._epoch_s = 0.0
        self._epoch_count = 0
        self._steps_per_epoch: int | None = None
        # The window up to the last reading, and the timed steps in it.
        self._read: TimedWindow | None = None
        self._read_s = 0.0
        self._read_count = 0

    def follow(self) -> TrainerResult:
        """Return the result, unsent, once the script has made its last step.

        Raises:
            RankFailed: it ended before, or told what cannot be.
        """
        marks = self._process.marks(wait_s=SEND_INTERVAL_S)
        for mark in marks:
            if mark is None:
                self._on_silence()
                continue
            if isinstance(mark, ProfileMark):  # which comes after the last one
                raise RankFailed(FailureKind.TRAINER_RAISED, self._not_in_order)
            self._silent_since_s, self._has_told_stacks = time.monotonic(), False
            self._check(mark)
            if isinstance(mark, EpochMark):
                self._end_epoch(mark)
                continue
            self._on_step(mark)
            if mark.number == self._process.mark_count:
                self._window.stop(mark.at_s)
                self._window.close()
                self._read, self._read_count = self._window, self._timed_count
                self._process.let_go()
                self._recorder.flush()
                self._profile = self._read_profile(marks)
                break
        else:
            self._on_end()
        self._recorder.flush()
        if self._process.wait(timeout_s=_GRACE_S) is None:
            logger.warning("%s went on after its last step, and is killed", self._process.name)
            self._process.end()
        return self._result()

    @property
    def _not_in_order(self) -> str:
        return f"{self._process.name}: its steps are not in order; only benchfarm may mark them"

    def _read_profile(self, marks: Iterator[ScriptMark | None]) -> StepProfile | None:
        """Return what a profiler sees of some more steps; None: there is none, or they took long.

        Whatever else happens meanwhile changes nothing of what was measured.
        """
        begun_s = time.monotonic()
        ends_s = [self._last.at_s]
        for mark in marks:
            if isinstance(mark, StepMark) and ends_s[-1] < mark.at_s <= time.monotonic():
                self._recorder.add(
                    StepKind.PROFILED, begun_s=ends_s[-1], time_s=mark.at_s - ends_s[-1]
                )
                ends_s.append(mark.at_s)
            elif isinstance(mark, ProfileMark):
                times_s = [end_s - begin_s for begin_s, end_s in itertools.pairwise(ends_s)]
                inside_s = mark.communication_s
                is_whole = len(inside_s) == len(times_s) == PROFILED_STEP_COUNT
                if not is_whole or not all(0 <= s <= MOST_TIME_S for s in inside_s):
                    return None
                if not any(inside_s):  # the ranks did communicate, and the profiler has missed it
                    return None
                # The first waits for ranks whose profiler has started later.
                return step_profile(times_s[1:], inside_s[1:])
            if time.monotonic() - begun_s > _MOST_PROFILE_S:
                break
            self._recorder.beat()
        return None

    def _on_silence(self) -> None:
        silent_s = time.monotonic() - self._silent_since_s
        if self._last.number == 0 and silent_s < _MOST_START_UP_S:
            self._line.emit(Progress(step_count=0))
        if silent_s > _SILENT_S and not self._has_told_stacks:
            self._has_told_stacks = True
            self._process.tell_stacks()

    def _check(self, mark: StepMark | EpochMark) -> None:
        """Raises RankFailed: marks are not in order, or a value is not possible."""
        name = self._process.name
        if isinstance(mark, StepMark):
            begun_s = self._last.at_s if mark.begun_s is None else mark.begun_s
            is_in_time = self._last.at_s <= begun_s < mark.at_s <= time.monotonic()
            is_in_time &= 0 <= (mark.data_wait_s or 0.0) <= MOST_TIME_S
            if mark.number != self._last.number + 1 or not is_in_time:
                raise RankFailed(FailureKind.TRAINER_RAISED, self._not_in_order)
        for loss in (mark.loss, mark.val_loss if isinstance(mark, EpochMark) else None):
            if loss is not None and not math.isfinite(loss):
                problem = f"{name}: loss: expected a finite number, got {loss}"
                raise RankFailed(FailureKind.NOT_A_NUMBER, problem)
        if mark.accuracy is not None and not 0 <= mark.accuracy <= 1:
            problem = f"{name}: accuracy: expected a share from 0 to 1, got {mark.accuracy}"
            raise RankFailed(FailureKind.TRAINER_RAISED, problem)

    def _on_step(self, mark: StepMark) -> None:
        previous, self._last = self._last, mark
        self._loss = self._loss if mark.loss is None else mark.loss
        self._epoch_steps += 1
        if mark.number == 1:
            self._on_first(mark)
        else:
            self._record(mark, previous)
        if mark.number == 1 + self._job.warmup_step_count:
            self._recorder.flush()
            self._window.open(mark.at_s)
            self._read_s = mark.at_s
            self._process.gather_s = _GATHER_S
        if mark.accuracy is not None:
            self._end_epoch(EpochMark(loss=mark.loss, val_loss=None, accuracy=mark.accuracy))

    def _on_first(self, mark: StepMark) -> None:
        self._process.connections()  # the first reading takes far longer than those that count
        self._process.cpu_s()
        self._first_step_s = mark.at_s - self._process.started_s
        self._line.emit(
            Started(
                parameter_count=mark.parameter_count,
                gradient_bytes=mark.parameter_bytes,
                connect_s=0.0,
                first_step_s=self._first_step_s,
            )
        )

    def _record(self, mark: StepMark, previous: StepMark) -> None:
        begun_s = previous.at_s
        if mark.begun_s is not None:
            begun_s = mark.begun_s
            self._recorder.close_chunk()
        is_timed = mark.number > 1 + self._job.warmup_step_count
        kind = StepKind.TIMED if is_timed else StepKind.WARMUP
        self._recorder.add(kind, begun_s=begun_s, time_s=mark.at_s - begun_s)
        self._epoch_s += mark.at_s - begun_s
        if is_timed:
            self._timed_count += 1
            self._pause_s += begun_s - previous.at_s
            self._times_s.append(mark.at_s - begun_s)
            waited_s = (mark.data_wait_s or 0.0) - (previous.data_wait_s or 0.0)
            self._data_waits_s.append(max(0.0, waited_s))
            if mark.examples_count is None:
                self._examples_count = None
            elif self._examples_count is not None:
                self._examples_count += mark.examples_count
            if self._job.steps is None:
                self._read_counters(mark.at_s)

    def _read_counters(self, at_s: float) -> None:
        assert self._window.begun_s is not None
        due_s = min(_READING_S, _READING_SHARE * (at_s - self._window.begun_s))
        if at_s - self._read_s >= due_s:
            self._read, self._read_s = self._window.ended_at(at_s), at_s
            self._read_count = self._timed_count

    def _end_epoch(self, epoch: EpochMark) -> None:
        self._loss = self._loss if epoch.loss is None else epoch.loss
        self._accuracy = self._accuracy if epoch.accuracy is None else epoch.accuracy
        if self._job.steps is None and self._epoch_steps and self._epoch_count < MOST_SCRIPT_EPOCHS:
            self._recorder.add_epoch(
                Epoch(
                    epoch=self._epoch_count,
                    # Of the first step nobody knows the time without the start-up.
                    train_s=self._epoch_s or self._first_step_s,
                    step_count=self._epoch_steps,
                    train_loss=epoch.loss,
                    val_loss=epoch.val_loss,
                    val_accuracy_ratio=epoch.accuracy,
                )
            )
            self._epoch_count += 1
            self._steps_per_epoch = self._epoch_steps
        self._epoch_steps, self._epoch_s = 0, 0.0

    def _on_end(self) -> None:
        """Raises RankFailed: the script has ended, and was not to."""
        process, mark_count = self._process, self._last.number
        status = process.wait(timeout_s=_GRACE_S)
        if status is None:
            problem = f"{process.name}: closed the pipe of its steps and went on"
            raise RankFailed(FailureKind.TRAINER_RAISED, problem)
        if status < 0:
            # End by the same signal: the agent looks for the cause, such as memory that ran out.
            with contextlib.suppress(OSError):  # of SIGKILL there is nothing to set
                signal.signal(-status, signal.SIG_DFL)
            os.kill(os.getpid(), -status)
        if status != 0 or self._job.steps is not None or self._read is None:
            raise process.failure(mark_count, status=status, world_size=self._job.world_size)

    def _data_wait_s(self) -> float:
        """Return the waits within steps, without those that hold a pause, such as an evaluation."""
        most_s = PAUSE_MEDIANS * statistics.median(self._times_s)
        both = zip(self._times_s, self._data_waits_s, strict=True)
        return math.fsum(wait_s for time_s, wait_s in both if time_s <= most_s)

    def _result(self) -> TrainerResult:
        assert self._read is not None
        times = ScriptTimes(
            pause_s=self._pause_s,
            data_wait_s=None if self._last.data_wait_s is None else self._data_wait_s(),
            examples_count=self._examples_count,
            epoch_count=self._epoch_count or None,
            steps_per_epoch=self._steps_per_epoch,
        )
        return TrainerResult(
            **self._read.figures(),
            timed_step_count=self._timed_count,
            window_step_count=self._read_count,
            train_loss=self._loss,
            val_accuracy_ratio=self._accuracy,
            peak_resident_bytes=resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024,
            seed=self._job.seed,
            profile=self._profile,
            details={**self._read.details(self._core_count), SCRIPT_TIMES: to_json(times)},
        )
