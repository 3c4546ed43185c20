"""The timed window: when the timed steps ran, and what the interface carried meanwhile."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

STATISTICS = Path("/sys/class/net")


@dataclass(frozen=True, slots=True, kw_only=True)
class InterfaceBytes:
    """The kernel's counters of a whole interface, since it came up."""

    rx_bytes: int
    tx_bytes: int


def read_interface(interface: str, *, statistics: Path = STATISTICS) -> InterfaceBytes | None:
    """Read the byte counters; None where there is no such interface."""
    folder = statistics / interface / "statistics"
    try:
        return InterfaceBytes(
            rx_bytes=int((folder / "rx_bytes").read_text()),
            tx_bytes=int((folder / "tx_bytes").read_text()),
        )
    except OSError:
        return None


class TimedWindow:
    """Opened and closed around each part that counts: once by steps, once an epoch by epochs.

    `traffic` and `duration_s` are of the open parts alone, so that evaluation and waiting between
    epochs are not in them; `span_s` is from the first begin to the last end.
    """

    def __init__(self, interface: str, *, statistics: Path = STATISTICS) -> None:
        self._interface = interface
        self._statistics = statistics
        self._at_open: InterfaceBytes | None = None
        self._opened_at_s = 0.0
        self._ended_s = 0.0
        self.begun_s: float | None = None  # CLOCK_MONOTONIC
        self.duration_s = 0.0
        self.traffic: InterfaceBytes | None = InterfaceBytes(rx_bytes=0, tx_bytes=0)

    @property
    def span_s(self) -> float:
        assert self.begun_s is not None, "the window was never opened"
        return self._ended_s - self.begun_s

    def open(self) -> None:
        self._at_open = read_interface(self._interface, statistics=self._statistics)
        self._opened_at_s = time.monotonic()
        if self.begun_s is None:
            self.begun_s = self._opened_at_s

    def close(self) -> None:
        self._ended_s = time.monotonic()
        now = read_interface(self._interface, statistics=self._statistics)
        self.duration_s += self._ended_s - self._opened_at_s
        self.traffic = _grown(self.traffic, before=self._at_open, after=now)


def _grown(
    total: InterfaceBytes | None, *, before: InterfaceBytes | None, after: InterfaceBytes | None
) -> InterfaceBytes | None:
    """Add the growth of both counters; None for good after a missing reading or a reset."""
    if total is None or before is None or after is None:
        return None
    rx_bytes, tx_bytes = after.rx_bytes - before.rx_bytes, after.tx_bytes - before.tx_bytes
    if rx_bytes < 0 or tx_bytes < 0:
        return None
    return InterfaceBytes(rx_bytes=total.rx_bytes + rx_bytes, tx_bytes=total.tx_bytes + tx_bytes)
