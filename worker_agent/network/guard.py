"""Records each change to the network on disk and starts a watchdog that undoes it."""

from __future__ import annotations

import logging
import select
import subprocess
import sys
import threading
from pathlib import Path

from worker_agent.network import watchdog
from worker_agent.network.applied_note import AppliedNote, NoteFile
from worker_agent.network.environment import plain_environment
from worker_agent.trainer_process import privilege

logger = logging.getLogger(__name__)

_START_LIMIT_S = 10.0
_END_LIMIT_S = 5.0


class Guard:
    """The agent's end of the process that undoes a note when the agent cannot."""

    def __init__(self, notes: NoteFile, note: AppliedNote, *, limit_s: float) -> None:
        """Write the note, start the watchdog and wait until it guards. Raises OSError."""
        self.number = note.number
        with notes.locked():
            notes.write(note)
        state_dir = note.site.state_dir
        undo = (sys.executable, "-P", "-m", "worker_agent.network.undo", state_dir, note.number)
        log_file = Path(state_dir) / f"{notes.name}.log"
        with log_file.open("wb") as log, privilege.handed_on():
            self._process = subprocess.Popen(
                (sys.executable, "-I", "-S", watchdog.__file__, f"{limit_s:.0f}", *undo),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=plain_environment(),
                cwd="/",
                process_group=0,  # Ctrl-C is not for it; of another session it would be killed
                bufsize=0,
            )
        assert self._process.stdout is not None
        with self._process.stdout as said:
            readable, _, _ = select.select([said], [], [], _START_LIMIT_S)
            if not readable or said.read(1) != watchdog.ALIVE:
                self._process.kill()
                self._process.wait(timeout=_END_LIMIT_S)
                raise OSError(f"it did not start: see {log_file}")

    @property
    def pid(self) -> int:
        return self._process.pid

    def release(self) -> None:
        """Tell it that nothing is left to undo, and see it end."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(watchdog.RELEASE)
        except BrokenPipeError:
            logger.debug("watchdog had ended already", extra={"pid": self.pid})
        self._process.stdin.close()
        try:
            self._process.wait(timeout=_END_LIMIT_S)
        except subprocess.TimeoutExpired:
            logger.warning("watchdog does not end", extra={"pid": self.pid})

    def alarm(self) -> None:
        """Let it undo now, and try until it succeeds."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        threading.Thread(target=self._process.wait, name="watchdog", daemon=True).start()
