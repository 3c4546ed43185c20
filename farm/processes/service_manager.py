"""Notifies systemd that this process is ready and alive (sd_notify(3)).

A process that systemd does not manage, such as one of `farm up`, sends nothing.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import socket
import time
from collections.abc import MutableMapping

logger = logging.getLogger(__name__)

_MICROSECONDS = 1e6
# systemd ends who is silent for its whole interval; a lost or late word must not be enough.
_WORDS_IN_INTERVAL = 4
_STDERR = 2


class ServiceManager:
    """The service manager that started this process, if any."""

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        """Read where to tell, and take it out of `environ`: no child may speak for this process.

        A process that is watched writes what each of its threads does when systemd ends it with
        SIGABRT, so that the journal shows where it hung.
        """
        address = environ.pop("NOTIFY_SOCKET", "")
        interval_us = environ.pop("WATCHDOG_USEC", "")
        watched_pid = environ.pop("WATCHDOG_PID", str(os.getpid()))
        # An abstract name begins with a null byte, which no variable can hold.
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._every_s: float | None = None
        self._notified_s: float | None = None
        if address and interval_us.isdigit() and watched_pid == str(os.getpid()):
            self._every_s = int(interval_us) / _MICROSECONDS / _WORDS_IN_INTERVAL
            faulthandler.enable(file=_STDERR)

    def notify_watchdog(self) -> None:
        """Notify systemd that the process is ready, at first, and later that it is alive.

        Call it in each turn of a loop: few of the calls send a message.
        """
        now = time.monotonic()
        if self._notified_s is None:
            self._notify("READY=1")
        elif self._every_s is None or now - self._notified_s < self._every_s:
            return
        else:
            self._notify("WATCHDOG=1")
        self._notified_s = now

    def sleep(self, seconds: float) -> bool:
        """Sleep in a loop that only a signal ends; returns False."""
        self.notify_watchdog()
        time.sleep(seconds)
        return False

    def _notify(self, words: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as teller:
                teller.settimeout(1.0)
                teller.sendto(words.encode(), self._address)
        except OSError as error:
            logger.warning("service manager was not notified of %s: %s", words, error)
