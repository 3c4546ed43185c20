"""The process of a user's script: its start, its step marks, its resource usage, and its failures.

`benchfarm.run` runs the script in that process, and writes a mark for every step to a pipe.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import psutil

from benchfarm.marks import FD_VARIABLE, GO_ON_VARIABLE, LAST_MARK_VARIABLE, PROFILED_VARIABLE
from farm.configuration.axes import AXES, spec_values
from farm.configuration.scripts import PER_RANK, script_of, variables_of, words_of
from farm.messages.trainer_lines import Assignment, FailureKind, GoLine
from farm.processes.tcp_connections import socket_inodes, tcp_connections
from farm.sampling.byte_count import ByteCount
from farm.trainers.failures import RankFailed, kind_of
from farm.trainers.script.launchers import ScriptLauncher

_TRACEBACK = "Traceback (most recent call last)"
_EXCEPTION = 1  # Python's status after one that nobody caught, and of sys.exit("text")
_TAIL_BYTES = 1 << 16
_MOST_LINE_BYTES = 1 << 16  # of a mark, which has 200
# After the timed ones. The first waits for ranks whose profiler starts later, see `ScriptWatch`.
PROFILED_STEP_COUNT = 12
_PIPE_BYTES = 1 << 20  # of marks that gather before they are read
_SHOWN_CHARACTERS = 500
# PyTorch's own hook writes it before each line of a traceback.
_OF_RANK = re.compile(r"^\[rank\d+\]:\s?")
_RAISED = re.compile(r"(?P<name>[A-Za-z_][\w.]*): (?P<text>.*)|(?P<bare>[A-Z]\w*(Error|Exception))")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMark:
    """The end of a step, in seconds of CLOCK_MONOTONIC, with the script's report of it.

    `begun_s`: when it began, if not with the mark before it. `data_wait_s`: for how long the
    process has waited for data since it began.
    """

    number: int
    at_s: float
    begun_s: float | None = None
    data_wait_s: float | None = None
    examples_count: int | None = None
    loss: float | None = None
    accuracy: float | None = None
    parameter_count: int | None = None
    parameter_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochMark:
    """The end of an epoch, after the last of its steps."""

    loss: float | None
    val_loss: float | None
    accuracy: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileMark:
    """What PyTorch's profiler saw: of each profiled step the seconds of communication, in order."""

    communication_s: tuple[float, ...]


ScriptMark: TypeAlias = StepMark | EpochMark | ProfileMark


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


class ScriptProcess:
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
        job = assignment.job
        self.name = f"script {script_of(job.model)}"
        # The first starts the clock. None: the script ends by itself.
        self.mark_count = None if job.steps is None else 1 + job.warmup_step_count + job.steps
        self._fewest_marks = 1 + job.warmup_step_count + (job.steps or 1)
        self._marks, its_marks = os.pipe()
        with contextlib.suppress(OSError):  # a user may have had too much of it already
            fcntl.fcntl(self._marks, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        its_go_on, self._go_on = os.pipe()
        model, values = job.model, _values_of(assignment)
        environment = {
            **os.environ,
            **variables_of(model, values),
            **launcher.environment(assignment, go),
            FD_VARIABLE: str(its_marks),
            GO_ON_VARIABLE: str(its_go_on),
            LAST_MARK_VARIABLE: str(self.mark_count or 0),
            PROFILED_VARIABLE: str(PROFILED_STEP_COUNT if job.world_size > 1 else 0),
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

    def marks(self, *, wait_s: float) -> Iterator[ScriptMark | None]:
        """Yield marks as they come, None after each pause of `wait_s`, until the script ends."""
        buffer = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._marks, selectors.EVENT_READ)
            while True:
                if not selector.select(wait_s):
                    yield None
                    continue
                time.sleep(self.gather_s)
                chunk = os.read(self._marks, _PIPE_BYTES)
                *lines, buffer = (buffer + chunk).split(b"\n")
                if not chunk or len(buffer) > _MOST_LINE_BYTES:
                    return
                for text in lines:
                    yield _mark(text)

    def connections(self) -> Mapping[int, ByteCount] | None:
        """Return the byte counts of its processes' connections, by socket."""
        try:
            known = tcp_connections()
        except OSError:
            return None
        own = {inode for process in self._tree() for inode in socket_inodes(process.pid)}
        return {inode: count for inode, count in known.items() if inode in own}

    def cpu_s(self) -> float:
        """Return the processor time of its processes, including ended children."""
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
        """Return why it ended before its last step."""
        self._reader.join(timeout=2)
        lines = self._tail.decode(errors="replace").splitlines()
        texts = [text for line in lines if (text := _OF_RANK.sub("", line).rstrip())]
        last = texts[-1].strip()[:_SHOWN_CHARACTERS] if texts else "it wrote nothing"
        raised = _raised(texts) if status == _EXCEPTION else None
        if status == 0 and mark_count == 0:
            problem = "ended without a step: call benchfarm.step() once after each"
        elif status == 0:
            wanted = self._fewest_marks
            mend = "let it go on, or ask for fewer (--steps, --warmup-steps)"
            problem = f"ended after {mark_count} of {wanted} steps: {mend}"
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


def _raised(texts: Sequence[str]) -> re.Match[str] | None:
    """Return the line that names an exception: the last that is not indented after a traceback.

    More of its message, or warnings, may follow.
    """
    begins = [i for i, text in enumerate(texts) if text.startswith(_TRACEBACK)]
    after = texts[begins[-1] + 1 :] if begins else texts[-1:]
    return next(filter(None, map(_RAISED.fullmatch, after)), None)


def _closed(descriptor: int) -> int:
    if descriptor >= 0:
        os.close(descriptor)
    return -1


def _mark(text: bytes) -> ScriptMark:
    try:
        mark = json.loads(text)
        if "epoch" in mark:
            return EpochMark(
                **{name: _number(mark["epoch"][name]) for name in ("loss", "val_loss", "accuracy")}
            )
        if "profile" in mark:
            return ProfileMark(communication_s=tuple(map(float, mark["profile"] or ())))
        count, byte_count = map(_natural, mark.get("size") or (None, None))
        return StepMark(
            number=int(mark["mark"]),
            at_s=float(mark["monotonic_s"]),
            begun_s=_number(mark.get("begun_s")),
            data_wait_s=_number(mark.get("data_wait_s")),
            examples_count=_natural(mark.get("examples")),
            loss=_number(mark["loss"]),
            accuracy=_number(mark["accuracy"]),
            parameter_count=count,
            parameter_bytes=byte_count,
        )
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return StepMark(number=0, at_s=0.0)  # in no order


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _natural(value: object) -> int | None:
    return value if isinstance(value, int) and 0 < value < 2**53 else None
