"""One trainer process: its pipes, its end, its last words."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from farm.core.codec import to_json
from farm.core.trainer_lines import Assignment, Event, GoLine, read_event
from farm.errors import InvalidSpec, TrainerFailed
from worker_agent.leftovers import MARK

logger = logging.getLogger(__name__)

_LINE_LIMIT = 4 * 1024 * 1024
_TAIL_BYTES = 8 * 1024
# The go line of a large gang is longer than a pipe's default of 64 KiB, and nothing must wait
# for a trainer to read.
_PIPE_BYTES = 1024 * 1024
# A trainer gets what an ordinary program of this user would (proxies, libraries' settings), but
# nothing of the farm's: the broker's URL carries a password. Nor a cluster left over in the
# environment, which would contradict the one that go brings.
_WITHHELD_PREFIXES = ("FARM_", "AGENT_", "CELERY_")
_WITHHELD = ("TF_CONFIG",)
_SECRET_PARTS = ("TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "_KEY", "_URL", "_DSN")


def trainer_environment(environ: Mapping[str, str], *, state_dir: Path) -> dict[str, str]:
    """Choose what a trainer may know of the agent's environment, and mark it as this agent's."""
    chosen = {
        key: value
        for key, value in environ.items()
        if key == "FARM_DATA_DIR"
        or not (
            key in _WITHHELD
            or key.startswith(_WITHHELD_PREFIXES)
            or any(part in key.upper() for part in _SECRET_PARTS)
        )
    }
    return {**chosen, MARK: str(state_dir), "PYTHONUNBUFFERED": "1"}


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
        on_event: Callable[[Event], None],
        on_exit: Callable[[int], None],
    ) -> None:
        """Start it and write the assignment. Raises TrainerFailed if it does not even start."""
        self._on_event = on_event
        self._on_exit = on_exit
        self._tail_lock = threading.Lock()  # both readers add to the tail
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                cwd=folder,
                start_new_session=True,
            )
        except OSError as error:
            raise TrainerFailed(f"trainer {command[0]} could not be started: {error}") from error
        assert self._process.stdin
        assert self._process.stdout
        assert self._process.stderr
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self._readers = [
            threading.Thread(target=self._read_events, name="trainer-events", daemon=True),
            threading.Thread(
                target=self._read_log, args=(self._process.stderr,), name="trainer-log", daemon=True
            ),
        ]
        for reader in self._readers:
            reader.start()
        threading.Thread(target=self._await_exit, name="trainer-exit", daemon=True).start()
        os.set_blocking(self._stdin.fileno(), False)
        try:
            fcntl.fcntl(self._stdin.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        except OSError as error:
            logger.debug("pipe to the trainer stays small: %s", error)
        self.write(assignment)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def log_tail(self) -> str:
        """The end of what it printed."""
        with self._tail_lock:
            tail = b"".join(self._tail)
        return tail[-_TAIL_BYTES:].decode(errors="replace")

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
        """Kill its whole process group; harmless when it has ended."""
        # The group may outlive its leader, but once that has been waited for its number may be
        # another's; what is left then is found by its mark.
        if self._process.poll() is None:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                logger.debug("trainer had ended already", extra={"pid": self._process.pid})

    def close(self) -> None:
        """Wait for its end, briefly, and release the pipes. Kill it first."""
        self._process.wait(timeout=10)
        for reader in self._readers:
            reader.join(timeout=5)
        self._stdin.close()

    def _await_exit(self) -> None:
        return_code = self._process.wait()
        for reader in self._readers:
            # A child of the trainer may hold the pipes open for as long as it lives.
            reader.join(timeout=2)
        self._on_exit(return_code)

    def _read_events(self) -> None:
        has_warned = False
        with self._stdout as lines:
            while line := lines.readline(_LINE_LIMIT):
                try:
                    event = read_event(line.decode(errors="replace"))
                except InvalidSpec as error:
                    # Libraries print where they should not. It belongs to the trainer's log; in
                    # the agent's, a line for each of them would fill the disk.
                    if not has_warned:
                        logger.warning("trainer wrote a line that is no event: %s", error)
                    has_warned = True
                    self._keep(line)
                    continue
                self._on_event(event)

    def _read_log(self, stream: IO[bytes]) -> None:
        with stream:
            while chunk := os.read(stream.fileno(), 4096):
                self._keep(chunk)

    def _keep(self, chunk: bytes) -> None:
        chunk = chunk[-_TAIL_BYTES:]
        with self._tail_lock:
            self._tail.append(chunk)
            self._tail_bytes += len(chunk)
            while self._tail_bytes - len(self._tail[0]) >= _TAIL_BYTES:
                self._tail_bytes -= len(self._tail.popleft())
