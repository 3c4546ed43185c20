"""Whom the kernel says it has killed for want of memory."""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path

logger = logging.getLogger(__name__)

KMSG = Path("/dev/kmsg")
_NAMESPACE = Path("/proc/self/ns/pid")
# The inode of the machine's first process namespace.
_FIRST_NAMESPACE = 0xEFFFFFFC
_RECORD_BYTES = 16 * 1024  # a longer record cannot be; a shorter buffer would be refused
# Of a control group or of the whole machine. What programs write into the log has another
# facility than the kernel's own 0, and proves nothing.
_KILLED = re.compile(
    rb"^(\d+),[^;\n]*;[^\n]*[Oo]ut of memory[^\n]*: Killed process (\d+) ", re.MULTILINE
)
_FACILITY_SHIFT = 3


def kernel_log_path() -> Path | None:
    """Return where the log is; None in a container, to whose numbers the log's do not belong."""
    return KMSG if _NAMESPACE.stat().st_ino == _FIRST_NAMESPACE else None


class KernelLog:
    """The kernel's log from now on; with None, or where it may not be read, it tells nothing.

    Opened at the log's present end, it keeps its place; `close` is due.
    """

    def __init__(self, path: Path | None) -> None:
        self._descriptor: int | None = None
        self._killed_pids: set[int] = set()
        self._has_lost_records = False
        if path is None:
            return
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._descriptor, 0, os.SEEK_END)
        except OSError as error:
            logger.debug("kernel's log cannot be read: %s", error)
            self.close()  # from its beginning it would tell of processes long gone

    def has_killed(self, pid: int) -> bool | None:
        """Say whether `pid` was killed for want of memory since the log was opened.

        False only where the log names others and is complete: a log without a single name may
        be late by a moment, and is no evidence. None: it does not tell.
        """
        self._read()
        if pid in self._killed_pids:
            return True
        return False if self._killed_pids and not self._has_lost_records else None

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _read(self) -> None:
        """Take every record that has come since, one each time it is read."""
        while self._descriptor is not None:
            try:
                record = os.read(self._descriptor, _RECORD_BYTES)
            except BrokenPipeError:  # the ring has gone round, and some were overwritten
                self._has_lost_records = True
                continue
            except BlockingIOError:
                return
            except OSError as error:
                logger.debug("kernel's log cannot be read any more: %s", error)
                self._has_lost_records = True
                self.close()
                return
            if not record:
                return
            for found in _KILLED.finditer(record):
                if int(found[1]) >> _FACILITY_SHIFT == 0:
                    self._killed_pids.add(int(found[2]))
