"""One trainer process: its pipes, its end and its last output."""

from __future__ import annotations

import fcntl
import io
import json
import logging
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

from farm.errors import InvalidSpec, TrainerFailed
from farm.messages.trainer_lines import (
    Assignment,
    Failure,
    FailureKind,
    GoLine,
    TrainerEvent,
    read_event,
)
from farm.values.codec import to_json
from worker_agent.trainer_process.child import Child
from worker_agent.trainer_process.logs import TrainerLog
from worker_agent.trainer_process.template import TemplateProcess
from worker_agent.trainer_process.user import TrainerUser, start_as

logger = logging.getLogger(__name__)

_LINE_LIMIT = 4 * 1024 * 1024
_READ_BYTES = 64 * 1024  # as much as a pipe holds
_NOT_STARTED = 127  # as a shell says it
# The go line of a large gang is longer than a pipe's default of 64 KiB, and nothing must wait
# for a trainer to read.
_PIPE_BYTES = 1024 * 1024


class TrainerProcess:
    """Runs in a session of its own. `on_event` and `on_exit` are called in its threads.

    `on_exit` comes last, with the return code as `subprocess` has it, and exactly once.
    """

    def __init__(
        self,
        command: tuple[str, ...],
        assignment: Assignment,
        *,
        environment: dict[str, str],
        folder: Path,
        on_event: Callable[[TrainerEvent], None],
        on_exit: Callable[[int], None],
        user: TrainerUser | None = None,
        template: TemplateProcess | None = None,
    ) -> None:
        """Start it and write the assignment.

        With a `template` it is forked from that, and started by `command` only if that fails, as
        soon as it has failed; this takes place in a thread.

        Raises:
            TrainerFailed: without a template, it did not even start.
        """
        self._command = command
        self._environment = environment
        self._folder = folder
        self._user = user
        self._on_event = on_event
        self._on_exit = on_exit
        self._template = template
        self.log = TrainerLog()
        self._start_lock = threading.Lock()  # nothing is started once it has been killed
        self._is_killed = False
        self._is_settled = threading.Event()  # it has started, or never will
        self._has_ended = threading.Event()
        self._child: Child | None = None
        its_input, self._stdin = _pipe()
        self._stdout, its_output = _pipe()
        self._stderr, its_errors = _pipe()
        self._ends = (its_input, its_output, its_errors)
        if template is None:
            try:
                self._start_cold()
            except TrainerFailed:
                for pipe in (self._stdin, self._stdout, self._stderr, *self._ends):
                    pipe.close()
                raise
        self._readers = [
            threading.Thread(target=self._read_events, name="trainer-events", daemon=True),
            threading.Thread(target=self._read_log, name="trainer-log", daemon=True),
        ]
        for reader in self._readers:
            reader.start()
        # The kernel kills a trainer when the thread that has started it ends, and this one may be
        # that thread: it stays until the trainer has ended.
        threading.Thread(target=self._live, name="trainer", daemon=True).start()
        os.set_blocking(self._stdin.fileno(), False)
        try:
            fcntl.fcntl(self._stdin.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        except OSError as error:
            logger.debug("pipe to the trainer stays small: %s", error)
        self.write(assignment)

    @property
    def pid(self) -> int:
        """Known before its first event is."""
        assert self._child is not None
        return self._child.pid

    @property
    def log_tail(self) -> str:
        """The end of what it printed."""
        return self.log.tail

    def write(self, line: Assignment | GoLine) -> None:
        """Hand it a line. One that has died does not mind: its exit is reported anyway.

        Raises:
            TrainerFailed: it reads nothing.
        """
        data = json.dumps(to_json(line), separators=(",", ":")).encode() + b"\n"
        try:
            written = os.write(self._stdin.fileno(), data)
        except BlockingIOError:
            written = 0
        except BrokenPipeError:
            return
        if written < len(data):
            raise TrainerFailed(f"trainer took {written} of {len(data)} bytes of its input")

    def kill(self) -> None:
        """Kill its whole process group; harmless when it has ended.

        One that is still to be forked never will be: the template goes with it, since it may have
        begun already.
        """
        with self._start_lock:
            self._is_killed = True
            child = self._child
        if child is not None:
            child.kill_group()
        elif self._template is not None and not self._has_ended.is_set():
            self._template.kill()

    def close(self) -> None:
        """Wait for its end, briefly, and release the pipes. Kill it first.

        Raises:
            TrainerFailed: it lives on.
        """
        if not self._has_ended.wait(timeout=10):
            raise TrainerFailed("killed trainer has not ended")
        for reader in self._readers:
            reader.join(timeout=5)
        self._stdin.close()

    def _live(self) -> None:
        try:
            return_code = self._start_and_wait()
        except TrainerFailed as error:
            self._on_event(Failure(kind=FailureKind.REFUSED, message=str(error)))
            return_code = _NOT_STARTED
        self._has_ended.set()
        for reader in self._readers:
            # A child of the trainer may hold the pipes open for as long as it lives.
            reader.join(timeout=2)
        self._on_exit(return_code)

    def _start_and_wait(self) -> int:
        try:
            if self._template is not None:
                self._start_warm(self._template)
        finally:
            self._is_settled.set()
            for end in self._ends:
                end.close()
        return -signal.SIGKILL if self._child is None else self._child.wait()

    def _start_warm(self, template: TemplateProcess) -> None:
        pid = template.fork([end.fileno() for end in self._ends])
        with self._start_lock:
            if pid is not None:
                self._child = Child.adopted(pid)
            elif not self._is_killed:
                logger.warning("template does not serve; trainer starts cold")
                self._start_cold()
            if self._is_killed and self._child is not None:
                self._child.kill_group()

    def _start_cold(self) -> None:
        its_input, its_output, its_errors = self._ends
        try:
            process = start_as(
                self._user,
                self._command,
                stdin=its_input,
                stdout=its_output,
                stderr=its_errors,
                environment=self._environment,
                folder=self._folder,
            )
        except OSError as error:
            command = self._command[0]
            raise TrainerFailed(f"trainer {command} could not be started: {error}") from error
        self._child = Child.started(process)

    def _read_events(self) -> None:
        has_warned = False
        self._is_settled.wait()
        with io.BufferedReader(self._stdout) as lines:
            while line := lines.readline(_LINE_LIMIT):
                if has_warned and not line.startswith(b"{"):
                    self.log.add(line)  # an error for each of a million lines would take a core
                    continue
                try:
                    event = read_event(line.decode(errors="replace"))
                except InvalidSpec as error:
                    # Libraries print where they should not. It belongs to the trainer's log; in
                    # the agent's, a line for each of them would fill the disk.
                    if not has_warned:
                        logger.warning("trainer wrote a line that is no event: %s", error)
                    has_warned = True
                    self.log.add(line)
                    continue
                self._on_event(event)

    def _read_log(self) -> None:
        with self._stderr as stream:
            while chunk := stream.read(_READ_BYTES):
                self.log.add(chunk)


def _pipe() -> tuple[io.FileIO, io.FileIO]:
    reading, writing = os.pipe()
    return io.FileIO(reading, "rb"), io.FileIO(writing, "wb")
