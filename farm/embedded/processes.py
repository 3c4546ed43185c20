"""Child processes: starts them apart from the terminal, watches them and ends them.

Each child leads a session and a process group of its own. A Ctrl-C at the terminal reaches only the
parent, which then ends the children in order. If the parent is killed, the kernel sends SIGTERM to
every child (see `launcher`). Use this module from the main thread only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from farm.errors import FarmError
from farm.processes.private_files import make_private_folder, open_private

_LAUNCHER = Path(__file__).with_name("launcher.py")
_POLL_S = 0.02
_LOG_KEPT_BYTES = 4_000_000
_TAIL_BYTES = 16_384
_USAGE_STATUS = 2  # a setting that does not fit: starting again would not mend it


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What to start. `environ` is the child's whole environment; `argv[0]` is a path."""

    name: str
    argv: tuple[str, ...]
    environ: Mapping[str, str]
    stage: int = 0  # later stages are stopped first; one stage is stopped together
    grace_s: float = 10.0  # between SIGTERM and SIGKILL
    umask: int = -1  # -1: that of this process


class LoggedProcess:
    """One started program with its log file `NAME.log`, which is appended to."""

    def __init__(self, program: Program, *, log_dir: Path) -> None:
        self.program = program
        self.log_path = log_dir / f"{program.name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    def start(self) -> None:
        """Start, or start again after an end.

        Raises:
            FarmError: the operating system refuses.
        """
        make_private_folder(self.log_path.parent)
        if self.log_path.exists() and self.log_path.stat().st_size > _LOG_KEPT_BYTES:
            self.log_path.replace(self.log_path.with_suffix(".log.1"))
        argv = [sys.executable, "-I", "-S", str(_LAUNCHER), str(os.getpid()), *self.program.argv]
        try:
            with open_private(self.log_path, "a") as log:
                self._log_start = log.tell()
                self._process = subprocess.Popen(
                    argv,
                    env=dict(self.program.environ),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    umask=self.program.umask,
                )
        except OSError as error:
            raise FarmError(f"{self.program.name} cannot be started: {error}") from error

    @property
    def pid(self) -> int:
        """Its process id, also that of its process group."""
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        # Looks without reaping: as long as the leader is a zombie, its group's id stays taken
        # and a signal to the group cannot hit a stranger.
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return self.is_unreaped and os.waitid(os.P_PID, self.pid, flags) is None

    @property
    def is_unreaped(self) -> bool:
        """Whether its process, dead or alive, has not been collected yet."""
        return self._process is not None and self._process.returncode is None

    def signal(self, number: signal.Signals) -> None:
        """Signal the whole process group; nothing happens once it has been reaped."""
        if self.is_unreaped:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def reap(self) -> int:
        """Kill what is left of the group; return the leader's exit status, as Popen has it."""
        assert self._process is not None, "not started"
        self.signal(signal.SIGKILL)
        return self._process.wait(timeout=10)

    def log_tail(self, lines: int = 15) -> str:
        """Return the last lines written since the latest start."""
        with contextlib.suppress(OSError), self.log_path.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_start, size - _TAIL_BYTES))
            return "\n".join(log.read().decode(errors="replace").splitlines()[-lines:])
        return ""


def stop_all(
    children: Iterable[LoggedProcess], *, skip_waiting: Callable[[], bool] = lambda: False
) -> None:
    """End the children, the last stage first; at most each stage's grace, then SIGKILL.

    `skip_waiting` is asked again and again: once true, nothing is waited for any more.
    """
    by_stage = sorted(children, key=lambda child: -child.program.stage)
    for _, group in groupby(by_stage, key=lambda child: child.program.stage):
        stage = [child for child in group if child.is_unreaped]
        for child in stage:
            child.signal(signal.SIGTERM)
        begun = time.monotonic()
        while any(
            child.is_alive and time.monotonic() < begun + child.program.grace_s for child in stage
        ):
            if skip_waiting():
                break
            time.sleep(_POLL_S)
        for child in stage:
            child.reap()


@dataclass(slots=True)
class _Restarts:
    """Instants are of the monotonic clock."""

    begun_s: float
    count: int = 0
    due_s: float | None = None


@dataclass(slots=True)
class ProcessSupervisor:
    """Restarts and reports each child process that ends by itself.

    At most `max_restarts` times each, after 1, 2, 4 ... seconds. The count of a child starts over
    once it has run for `forgiven_after_s`.
    """

    report: Callable[[str], None]
    max_restarts: int = 3
    forgiven_after_s: float = 600.0
    children: list[LoggedProcess] = field(default_factory=list)
    _restarts: dict[str, _Restarts] = field(default_factory=dict)

    def add(self, child: LoggedProcess) -> None:
        """Supervise a started child."""
        self.children.append(child)
        self._restarts[child.program.name] = _Restarts(begun_s=time.monotonic())

    def check(self) -> None:
        """Check every child once; call it about twice a second.

        Raises:
            FarmError: a child ended more often than it may be restarted.
        """
        for child in self.children:
            restarts = self._restarts[child.program.name]
            if restarts.due_s is not None:
                if time.monotonic() >= restarts.due_s:
                    restarts.begun_s, restarts.due_s = time.monotonic(), None
                    child.start()
            elif not child.is_alive:
                self._handle_end(child, restarts)

    def _handle_end(self, child: LoggedProcess, restarts: _Restarts) -> None:
        name, status = child.program.name, child.reap()
        end = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
        tail = child.log_tail()
        if time.monotonic() - restarts.begun_s > self.forgiven_after_s:
            restarts.count = 0
        if status == _USAGE_STATUS or restarts.count >= self.max_restarts:
            raise FarmError(
                f"{name} {end}, after {restarts.count} restarts; see {child.log_path}\n{tail}"
            )
        wait_s = 2.0**restarts.count
        restarts.count += 1
        restarts.due_s = time.monotonic() + wait_s
        self.report(f"{name} {end}; starting it again in {wait_s:.0f} s. Its log ends:\n{tail}")

    def stop(self, *, skip_waiting: Callable[[], bool] = lambda: False) -> None:
        """End all children; see `stop_all`."""
        stop_all(self.children, skip_waiting=skip_waiting)
