"""The trainer's process: its pipes to its agent, its cores and limits, and its end."""

from __future__ import annotations

import ctypes
import logging
import os
import queue
import resource
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from farm.errors import InvalidSpec
from farm.messages.trainer_lines import FailureKind, TrainerEvent, TrainerLimits, write_event
from farm.trainers.failures import RankFailed

logger = logging.getLogger(__name__)

EXIT_FAILED = 1  # a Failure was written
EXIT_USAGE = 2  # the first line was no assignment
EXIT_ABANDONED = 3  # the agent has gone

_KILLS = ("os.kill", "os.killpg", "signal.pthread_kill")  # audit events: target, signal

_STDIN, _STDOUT, _STDERR = 0, 1, 2
_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38
_MAX_LINE_BYTES = 1 << 20
_OOM_SCORE = Path("/proc/self/oom_score_adj")
# Of -1000 to 1000, each a thousandth of the memory that may be used.
_OOM_SCORE_OF_TRAINERS = 500


def take_stdout() -> int:
    """Return a private copy of standard output, and send everything printed to standard error.

    Libraries print to descriptor 1 from Python and from C++; not a byte of it may get between the
    events. Child processes do not inherit the copy.
    """
    private = os.dup(_STDOUT)
    os.dup2(_STDERR, _STDOUT)
    return private


def take_stdin() -> int:
    """Return a private copy of standard input, and leave an empty one in its place.

    A user's own code that asks for input then fails at once, and takes no order of the agent's.
    """
    private = os.dup(_STDIN)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, _STDIN)
    os.close(empty)
    return private


def log_to_stderr() -> None:
    """Log to standard error, before a library that is imported sets up something else."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)


def end_with_parent() -> None:
    """Let the kernel kill this process as soon as the thread that started, or adopted, it ends.

    A closed pipe says the same, but only while this process can run Python code; TensorFlow keeps
    the interpreter's lock for minutes when a peer is absent.
    """
    parent = os.getppid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        logger.warning("no parent-death signal: %s", os.strerror(ctypes.get_errno()))
    if os.getppid() != parent:  # It died before the request, and the signal will never come.
        leave(EXIT_ABANDONED)


def offer_memory() -> None:
    """Be the first that the kernel kills when memory runs out, before the agent and its spool.

    The agent then lives to say why. Raising one's own score needs no privilege.
    """
    try:
        if int(_OOM_SCORE.read_text()) < _OOM_SCORE_OF_TRAINERS:
            _OOM_SCORE.write_text(str(_OOM_SCORE_OF_TRAINERS))
    except OSError as error:
        logger.warning("trainer is no likelier to be killed than its agent: %s", error)


def limit(limits: TrainerLimits) -> None:
    """Hold this process, and all that it starts, within the limits.

    A limit that is lower already stays. A program that would give it another user's rights
    (set-user-ID) does not do so any more.
    """
    ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_DATA: limits.memory_bytes,
        resource.RLIMIT_NPROC: limits.process_count,
        resource.RLIMIT_NOFILE: limits.open_file_count,
        resource.RLIMIT_FSIZE: limits.file_bytes,
        resource.RLIMIT_CPU: limits.cpu_s,
    }
    for kind, value in wanted.items():
        if value is None:
            continue
        _, hard = resource.getrlimit(kind)
        lowered = value if hard == resource.RLIM_INFINITY else min(value, hard)
        try:
            resource.setrlimit(kind, (lowered, lowered))
        except (OSError, ValueError) as error:
            logger.warning("limit %d stays as it was: %s", kind, error)


def pin(cpus: Sequence[int]) -> None:
    """Bind this thread, and every thread it starts from now on, to `cpus`.

    Raises:
        InvalidSpec: a CPU that this machine, or this container, does not have.
    """
    try:
        os.sched_setaffinity(0, cpus)
        granted = os.sched_getaffinity(0)
    except (OSError, ValueError) as error:
        raise InvalidSpec("cpus", list(cpus), f"CPUs of this machine ({error})") from error
    if granted != set(cpus):
        raise InvalidSpec("cpus", list(cpus), f"CPUs of this machine, of which {sorted(granted)}")


def show_gpus(uuids: Sequence[str]) -> None:
    """Let this process and its children see these GPUs alone. CUDA reads it when it starts."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(uuids)


def leave(code: int) -> NoReturn:
    """End at once, without the interpreter's clean-up, in which TensorFlow can stall for long."""
    sys.stderr.flush()
    os._exit(code)


def end_fork(error: BaseException | None) -> NoReturn:
    """End a process that a user's own code has forked from the trainer, as Python would end it.

    Only the trainer itself may report, and go on. `error`: what the fork has raised.
    """
    code: object = 0
    if isinstance(error, SystemExit):
        code = error.code
    elif error is not None:
        logger.error("a process that the model's file has forked failed", exc_info=error)
        code = 1
    if not isinstance(code, int | None):
        print(code, file=sys.stderr)
        code = 1
    sys.stdout.flush()
    leave((code or 0) & 0xFF)


def report_own_kills(report: Callable[[str], None]) -> None:
    """Call `report` before this process sends itself a signal that others send, too.

    The agent cannot tell who has sent a SIGKILL or a SIGTERM; of all other signals it can guess.
    It holds until the process ends, since an audit hook cannot be removed.
    """
    own_pid, own_group = os.getpid(), os.getpgrp()
    own_targets = {"os.kill": (own_pid, 0, -1, -own_group), "os.killpg": (own_group, 0)}

    def hear(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in _KILLS or os.getpid() != own_pid:
            return
        target, number = arguments
        is_own = event not in own_targets or target in own_targets[event]
        if is_own and _is_deadly(number):
            report(f"sent {signal.Signals(number).name} to its own process")

    sys.addaudithook(hear)


def _is_deadly(number: int) -> bool:
    """Whether it ends this process; of the signals that a user or a service manager sends."""
    if number not in (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        return False
    return number == signal.SIGKILL or signal.getsignal(number) is signal.SIG_DFL


class Orders:
    """The lines that the agent writes; the end of the pipe ends the process.

    The first line is read by the caller's thread, so that it can pin itself before it starts
    another one; from `watch` on a thread waits for the rest.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._buffer = b""
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def read_line(self) -> str | None:
        """Return the next line; None at the end of the pipe, or when a line has no end."""
        while b"\n" not in self._buffer:
            chunk = os.read(self._descriptor, 1 << 16)
            if not chunk or len(self._buffer) > _MAX_LINE_BYTES:
                return None
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode(errors="replace")

    def watch(self) -> None:
        """Start to wait for lines; when the pipe ends, so does the process."""
        threading.Thread(target=self._watch, name="orders", daemon=True).start()

    def next_line(self, *, timeout_s: float) -> str:
        """Return the next line that the watching thread has read.

        Raises:
            RankFailed: none came in time.
        """
        try:
            return self._lines.get(timeout=timeout_s)
        except queue.Empty:
            raise RankFailed(
                FailureKind.RENDEZVOUS, f"no go from the agent within {timeout_s:g} s"
            ) from None

    def _watch(self) -> None:
        while (line := self.read_line()) is not None:
            self._lines.put(line)
        leave(EXIT_ABANDONED)


class EventWriter:
    """Writes events to the agent, each whole or not at all. Threads may share it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor
        self._lock = threading.Lock()

    def emit(self, event: TrainerEvent) -> None:
        """Write one event. Blocks when the agent does not read; raises when it has gone.

        A fork of the trainer that has come so far ends: it has nothing to report.
        """
        if self._descriptor is None:
            end_fork(None)
        data = write_event(event).encode()
        with self._lock:
            while data:
                data = data[os.write(self._descriptor, data) :]

    def close(self) -> None:
        """Give up the descriptor, in a process forked from the trainer."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
